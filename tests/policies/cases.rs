//! The valid and invalid cases that any policy file has to get right.

use tower_throttle::policy::PolicyFile;

use crate::support::App;

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
    let next = TOML.replace("version = 1", "version = 2");
    let refused = PolicyFile::from_toml(&next).unwrap_err().to_string();
    assert!(
        refused.contains("version: 2 is not allowed; this version of the library reads 1 only")
    );
}

#[test]
fn a_file_without_limits_warns() {
    let warnings = App::new("").handle.warnings();
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].to_string().contains("every request passes"));
}
