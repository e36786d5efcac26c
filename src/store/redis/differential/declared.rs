//! Every key that a script touches is in its KEYS: Dragonfly refuses others, and a cluster could not tell
//! where they are. The traces run behind a check of the same.

use super::policies::{
    fixed_window, leaky_meter, leaky_queue, lockout, sliding_grid, sliding_log, sliding_window,
    token_bucket, warm_up,
};
use super::random::Random;
use crate::algorithm::FixedWindow;
use crate::quota::Quota;
use crate::store::redis::{
    call::Call,
    script::{Program, Scripted, call_args},
};

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

fn check<A: Scripted>(name: &str, policy: impl Fn(&mut Random) -> A) {
    let body = Program::new(&policy(&mut Random::new(1))).script.body;
    assert_eq!(undeclared(&body), None, "{name}");
    // Names of keys are made by the client alone.
    for made in ["key ..", ".. key", "KEYS[first_key] ..", "']] .."] {
        assert!(!body.contains(made), "{name}: {made}");
    }
    let commands = ["PSETEX", "GET"].map(|command| body.contains(&format!("call('{command}'")));
    assert_eq!(commands, [true, true], "{name}: the commands are found");
}

/// Shows promise 272.
#[test]
fn a_script_touches_no_key_that_is_not_declared() {
    check("fixed_window", fixed_window);
    check("sliding_window", sliding_window);
    check("sliding_grid", sliding_grid);
    check("sliding_log", sliding_log);
    check("token_bucket", token_bucket);
    check("leaky_meter", leaky_meter);
    check("leaky_queue", leaky_queue);
    check("lockout", lockout);
    check("warm_up", warm_up);
    #[cfg(feature = "governor")]
    check("gcra", super::policies::gcra);
    check("pair", |random| (fixed_window(random), leaky_meter(random)));
    for script in [
        include_str!("../lua/fleet.lua"),
        include_str!("../lua/swap.lua"),
        include_str!("../lua/check/mark.lua"),
        include_str!("../lua/check/commands.lua"),
    ] {
        assert_eq!(undeclared(script), None, "{script}");
    }
}

/// The example at the beginning of a script, and in the guide, is what a limiter sends.
#[test]
fn the_example_of_a_script_is_that_of_a_limiter() {
    let window = FixedWindow::new(Quota::per_minute(5));
    let program = Program::new(&window);
    let (settings, args) = (&program.settings, call_args(&window, Call::Take(1)));
    let example = format!("'{{throttle:api:7}}' , '{settings}' '{args}'");
    assert!(program.script.body.contains(&example), "{example}");
    let guide = include_str!("../../../guide/redis.md");
    assert!(guide.contains(&example), "{example}");
}

/// Shows promise 272.
#[test]
fn a_key_that_a_script_makes_is_found() {
    for (right, wrong, found) in [
        (
            "call('DEL', key)",
            "call('DEL', key .. '~')",
            "DEL key .. '~'",
        ),
        ("call('GET', key)", "call('GET', own_key)", "GET own_key"),
    ] {
        let body = Program::new(&token_bucket(&mut Random::new(1))).script.body;
        assert!(body.contains(right), "{right}");
        let found = Some(found.to_owned());
        assert_eq!(undeclared(&body.replace(right, wrong)), found);
    }
}
