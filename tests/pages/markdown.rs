//! The parts of a page.

/// A line of a page, and the language of the code block that it is in.
pub(crate) struct Line<'a> {
    pub(crate) text: &'a str,
    pub(crate) code: Option<&'a str>,
}

/// All lines except those that begin or end a code block.
pub(crate) fn lines(page: &str) -> Vec<Line<'_>> {
    let mut code = None;
    let mut lines = Vec::new();
    for text in page.lines() {
        if let Some(language) = text.trim_start().strip_prefix("```") {
            code = if code.is_some() {
                None
            } else {
                Some(language.trim())
            };
        } else {
            lines.push(Line { text, code });
        }
    }
    lines
}

/// The text outside of code blocks.
pub(crate) fn prose(page: &str) -> String {
    let outside = lines(page).into_iter().filter(|line| line.code.is_none());
    outside.flat_map(|line| [line.text, "\n"]).collect()
}

/// The texts between backquotes outside of code blocks, in one line each.
pub(crate) fn spans(page: &str) -> Vec<String> {
    let prose = prose(page);
    let mut spans = Vec::new();
    // A span does not reach over the end of a paragraph.
    for paragraph in prose.split("\n\n") {
        let odd = paragraph.split('`').skip(1).step_by(2);
        spans.extend(odd.map(|span| span.split_whitespace().collect::<Vec<_>>().join(" ")));
    }
    spans
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

#[test]
fn the_parts_of_a_page_are_found() {
    let page = "# The `a::B` of C\n\n[x](y.md#z) `[no](link)` `cargo\nrun` ![p](q.svg)\n\n```sh\ncargo test\n```\n\n[`d`]: e\n";
    assert_eq!(anchors(page), ["the-ab-of-c"]);
    assert_eq!(targets(page), ["y.md#z", "q.svg", "e"]);
    assert_eq!(spans(page), ["a::B", "[no](link)", "cargo run", "d"]);
    let code: Vec<_> = lines(page).iter().filter_map(|line| line.code).collect();
    assert_eq!(code, ["sh"]);
}
