//! The valid and invalid cases that any policy file has to get right.

use tower_throttle::policy::PolicyFile;

use crate::support::App;

fn in_file(limit: &str) -> String {
    format!("version = 1\n\n[[limit]]\nname = \"api\"\nlimit = \"{limit}\"\nkey = \"client_ip\"\n")
}

/// The problems of a file, as they are printed.
fn problems(text: &str) -> String {
    match PolicyFile::from_toml(text) {
        Ok(file) => panic!("read as {file:?}"),
        Err(problems) => problems.to_string(),
    }
}

const TOML: &str = r#"
version = 1

[lists]
office = { cidrs = ["192.0.2.0/24", "!192.0.2.128/25"] }

[[limit]]
name = "api"
limit = "token_bucket 10/s; burst=50; queue=20 + fixed_window 10000/d"
key = "header:x-api-key"
missing = 401
match = { path = "/api/{*rest}", methods = ["GET"] }
except = "office"
headers = "draft-11"

[[limit]]
name = "login"
limit = "lockout 5/15min; on_success=clear"
match = { methods = "POST" }
key = ["client_ip/64", "extension:account"]
failure = [401, 403]
capacity = 100000
"#;

const JSON: &str = r#"{
    "$schema": "policies.schema.json",
    "version": 1,
    "lists": { "office": { "cidrs": ["192.0.2.0/24", "!192.0.2.128/25"] } },
    "limit": [
        {
            "name": "api",
            "limit": "token_bucket 10/s; queue=20; burst=50 + fixed_window 10000/d",
            "key": "header:X-Api-Key",
            "missing": 401,
            "match": { "path": ["/api/{*rest}"], "methods": "GET" },
            "except": "office",
            "shadow": false,
            "headers": "draft-11",
            "store": null
        },
        {
            "name": "login",
            "limit": "lockout 5/900s; on_success=clear",
            "match": { "methods": ["POST"] },
            "key": ["client_ip/64", "extension:account"],
            "capacity": 100000
        }
    ]
}"#;

const YAML: &str = "
version: 1
lists:
  office:
    cidrs: [192.0.2.0/24, '!192.0.2.128/25']
limit:
  - name: api
    limit: token_bucket 10/s; queue=20; burst=50 + fixed_window 10000/d
    key: header:x-api-key
    missing: 401
    match:
      path: /api/{*rest}
      methods: [GET]
    except: office
    headers: draft-11
  - name: login
    limit: lockout 5/15min; on_success=clear
    match: { methods: POST }
    key: [client_ip/64, 'extension:account']
    failure: [401, 403]
    capacity: 100000
";

/// Shows promise 221.
#[test]
fn one_file_in_toml_yaml_and_json_is_equal() {
    let toml = PolicyFile::from_toml(TOML).unwrap();
    assert_eq!(serde_json::from_str::<PolicyFile>(JSON).unwrap(), toml);
    assert_eq!(serde_norway::from_str::<PolicyFile>(YAML).unwrap(), toml);
    assert_eq!(toml::from_str::<PolicyFile>(TOML).unwrap(), toml);
    let other = TOML.replace("burst=50", "burst=51");
    assert_ne!(PolicyFile::from_toml(&other).unwrap(), toml);
}

#[test]
fn a_file_without_limits_warns() {
    let warnings = App::new("").handle.warnings();
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].to_string().contains("every request passes"));
}

/// Shows promise 221.
#[test]
fn invalid_files_name_the_line_the_field_and_what_is_allowed() {
    // What is wrong with the text of a limit, its parser tests.
    let two = problems(&in_file("token_bucket 5/s; burst=9; burst=9"));
    assert!(two.starts_with("line 5: limit[0].limit: "), "{two}");
    assert!(two.contains("burst once, it is given twice"), "{two}");
    let api = in_file("token_bucket 1/s");
    for (text, expected) in [
        (
            api.replace("limit =", "limt ="),
            "line 5: limit[0].limt: unknown field `limt`, expected one of `name`, `limit`, `key`,",
        ),
        (
            format!("{api}except = \"ofice\"\n[lists]\noffice = {{ file = \"a\" }}"),
            "line 7: limit[0].except: the list \"ofice\" is not defined; did you mean office?",
        ),
        (
            format!("{api}except = \"a\"\n[lists]\na = {{ cidrs = [\n\"10.1.2.3/16\"] }}"),
            "line 10: lists.a.cidrs[0]: networks: 10.1.2.3/16 is not allowed; give 10.1.0.0/16",
        ),
        (
            format!(
                "{api}{}",
                in_file("token_bucket 2/s").replace("version = 1\n", "")
            ),
            "line 9: limit[1].name: the name \"api\" is there twice",
        ),
        (
            api.replace("version = 1", "version = 2"),
            "line 1: version: 2 is not allowed; this version of the library reads 1 only",
        ),
    ] {
        let problems = problems(&text);
        assert!(problems.contains(expected), "{problems}");
    }
}
