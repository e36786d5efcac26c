//! The parts of a page.

/// The text outside of code blocks.
pub(crate) fn prose(page: &str) -> String {
    let mut is_code = false;
    let is_prose = |line: &&str| {
        let ends_block = line.trim_start().starts_with("```");
        is_code ^= ends_block;
        !ends_block && !is_code
    };
    let lines = page.lines().filter(is_prose);
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// The names of the headings in links, as rustdoc and the usual hosts make them.
pub(crate) fn anchors(page: &str) -> Vec<String> {
    let prose = prose(page);
    let headings = prose.lines().filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| -> String {
        let text = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = text.chars().filter_map(|c| match c {
            ' ' => Some('-'),
            c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
            _ => None,
        });
        kept.collect()
    };
    headings.map(anchor).collect()
}

/// The targets of links and of reference definitions.
pub(crate) fn targets(page: &str) -> Vec<String> {
    let prose = prose(page);
    // What is between backquotes is no link.
    let text: String = prose.split('`').step_by(2).collect::<Vec<_>>().join("_");
    let mut targets = Vec::new();
    for rest in text.split("](").skip(1) {
        targets.extend(rest.split(')').next().map(str::to_owned));
    }
    for line in prose.lines().filter(|line| line.starts_with('[')) {
        if let Some((_, target)) = line.split_once("]: ") {
            targets.push(target.trim().to_owned());
        }
    }
    targets
}
