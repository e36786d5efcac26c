//! Every key that a script touches is in its KEYS: Dragonfly refuses others, and a cluster could not tell
//! where they are. The traces run behind a check of the same.

/// Commands without a key.
const KEYLESS: [&str; 1] = ["TIME"];
/// How the files write a key of KEYS, or a list of such.
const DECLARED: [&str; 2] = ["KEYS[", "KEYS)"];

/// The first key in a script that is not one of KEYS, with its command.
fn undeclared(script: &str) -> Option<String> {
    // `key` is an argument, and a loop or a constructor takes it from KEYS.
    let is_declared = |key: &str| {
        DECLARED.iter().any(|start| key.starts_with(start)) || key == "key" || key == "other"
    };
    for start in ["call('", "run('"] {
        for call in script.split(start).skip(1) {
            let (command, rest) = call.split_once('\'').expect("the end of the command");
            let argument = rest.trim_start_matches(", ");
            let end = argument.find([',', ')']).unwrap_or(argument.len());
            let key = argument[..end].trim();
            if !KEYLESS.contains(&command) && !is_declared(key) {
                return Some(format!("{command} {key}"));
            }
        }
    }
    None
}

/// Shows promise 123.
#[test]
fn every_key_of_a_script_is_declared() {
    for script in [
        include_str!("../lua/drain.lua"),
        include_str!("../lua/limits.lua"),
        include_str!("../lua/fleet.lua"),
        include_str!("../lua/swap.lua"),
    ] {
        assert_eq!(undeclared(script), None, "{script}");
    }
}
