//! Files of lists: their errors and their encoding.

use tower_throttle::policy::{PolicyFile, PolicyLayer};

use test_support::folder::Folder;

use crate::support::{environment, file};

const DENIES: &str = "[lists.bad]\nfile = \"list\"\n[[deny]]\nlist = \"bad\"\n";

fn error(folder: &Folder) -> String {
    let environment = environment().folder(&**folder);
    PolicyLayer::new(file(DENIES), environment)
        .unwrap_err()
        .to_string()
}

/// Shows promise 221.
#[test]
fn an_error_in_a_list_shows_its_line_and_not_its_text() {
    let folder = Folder::new("secrets");
    for (text, expected) in [
        (
            "10.0.0.0/8\npassword=hunter2\n",
            "line 2 is not allowed; give a network such as",
        ),
        (
            "hunter2/24\n",
            "line 1 is not allowed; give a network such as",
        ),
        (
            "# none\n\n10.0.0.0/hunter2",
            "line 3 is not allowed; give a prefix in decimal digits",
        ),
        (
            "10.0.0.1/8 # hunter2",
            "line 1 is not allowed; give 10.0.0.0/8 for the network",
        ),
        ("10.0.0.0/8\n!hunter2", "line 2 is not allowed"),
    ] {
        folder.write("list", text);
        let error = error(&folder);
        assert!(error.contains(expected), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
    // A value that is no network is shown where it was written for the policy.
    let inline = "version = 1\n[lists.bad]\ncidrs = [\"hunter2\"]\n[[deny]]\nlist = \"bad\"";
    let error = PolicyFile::from_toml(inline).unwrap_err().to_string();
    assert!(error.contains("hunter2"), "{error}");
}
