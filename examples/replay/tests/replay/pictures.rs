//! The pictures of the guide.

use std::{collections::BTreeSet, fs, path::Path};

/// `cargo run --example pictures` draws them anew.
///
/// Shows promise 101.
#[test]
fn the_pictures_in_the_repository_are_those_that_the_program_draws() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/img");
    let pictures = replay::pictures().expect("valid policies");
    for (name, svg) in &pictures {
        let kept = fs::read_to_string(folder.join(name)).unwrap_or_default();
        assert!(
            kept == *svg,
            "docs/img/{name} is not what the program draws"
        );
    }
    let files = fs::read_dir(folder.join("algorithms")).expect("the folder");
    let files = files.map(|file| {
        file.expect("a file")
            .file_name()
            .into_string()
            .expect("UTF-8")
    });
    let drawn = pictures
        .iter()
        .filter_map(|(name, _)| name.strip_prefix("algorithms/"));
    let drawn: BTreeSet<String> = drawn.map(str::to_owned).collect();
    assert_eq!(
        files.collect::<BTreeSet<_>>(),
        drawn,
        "no algorithm has an old picture"
    );
}
