//! SVG documents that follow the reader's color scheme and say in words what they show.
//!
//! The colors are those of Okabe and Ito, which color-blind people can distinguish. Nothing depends on
//! color alone: lines have different dashes, and denied units are outlined instead of filled.
//!
//! The text has neither `#`, `%` nor `'`, so that `'data:image/svg+xml,TEXT'` is a URL.

use std::fmt::{self, Write};

/// Classes for light and dark paper.
const STYLE: &str = "\
text{font:12px sans-serif;fill:rgb(36,41,47)}
.title{font-size:15px;font-weight:bold}
.small{font-size:10px}
.name{font-size:12px;font-weight:bold}
.end{text-anchor:end}
.middle{text-anchor:middle}
.paper{fill:rgb(255,255,255)}
.grid{fill:none;stroke:rgb(208,215,222)}
.offered{fill:rgb(208,215,222)}
.admitted{fill:rgb(0,114,178)}
.other{fill:rgb(0,158,115)}
.waiting{fill:rgb(230,159,0)}
.denied{fill:none;stroke:rgb(213,94,0)}
.over{fill:rgb(213,94,0)}
.line.admitted{fill:none;stroke:rgb(0,114,178);stroke-width:2}
.line.other{fill:none;stroke:rgb(0,158,115);stroke-width:2;stroke-dasharray:8 2}
.line.denied{stroke-width:2;stroke-dasharray:6 3}
.limit{fill:none;stroke:rgb(36,41,47);stroke-dasharray:1 3;stroke-linecap:round;stroke-width:1.5}
@media(prefers-color-scheme:dark){
text{fill:rgb(230,237,243)}
.paper{fill:rgb(13,17,23)}
.grid{stroke:rgb(61,68,77)}
.offered{fill:rgb(61,68,77)}
.admitted{fill:rgb(86,180,233)}
.line.admitted{stroke:rgb(86,180,233)}
.denied{stroke:rgb(255,140,70)}
.over{fill:rgb(255,140,70)}
.limit{stroke:rgb(230,237,243)}
}
";

/// A length in tenths of a pixel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Px(pub u64);

impl fmt::Display for Px {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 % 10 {
            0 => write!(f, "{}", self.0 / 10),
            part => write!(f, "{}.{part}", self.0 / 10),
        }
    }
}

/// Whole pixels.
pub const fn px(pixels: u64) -> Px {
    Px(pixels * 10)
}

/// A document that is being written.
#[derive(Clone, Debug)]
pub struct Svg(String);

impl Svg {
    /// An empty page. Screen readers read out the title and the description.
    pub fn new(width: u64, height: u64, title: &str, description: &str) -> Self {
        let (title, description) = (escaped(title), escaped(description));
        Self(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" role=\"img\">\n\
             <title>{title}</title>\n<desc>{description}</desc>\n<style>\n{STYLE}</style>\n\
             <path class=\"paper\" d=\"M0 0H{width}V{height}H0Z\"/>\n"
        ))
    }

    /// A text with its baseline at `y`.
    pub fn text(&mut self, class: &str, x: Px, y: Px, text: &str) {
        let text = escaped(text);
        self.put(format_args!(
            "<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{text}</text>\n"
        ));
    }

    /// A text that reads upwards.
    pub fn text_upwards(&mut self, x: Px, y: Px, text: &str) {
        let text = escaped(text);
        self.put(format_args!(
            "<text class=\"middle\" transform=\"translate({x} {y})rotate(-90)\">{text}</text>\n"
        ));
    }

    /// A shape, if it has any points.
    pub fn path(&mut self, class: &str, points: &str) {
        if !points.is_empty() {
            self.put(format_args!("<path class=\"{class}\" d=\"{points}\"/>\n"));
        }
    }

    /// The whole document.
    pub fn end(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }

    fn put(&mut self, text: fmt::Arguments<'_>) {
        let _ = self.0.write_fmt(text);
    }
}

/// A line with steps: the level of each column, from left to right, each as far as `x` of its end.
pub fn steps(left: Px, columns: impl IntoIterator<Item = (Px, Px)>) -> String {
    let mut points = String::new();
    let mut last = None;
    let mut end = left;
    for (right, y) in columns {
        let _ = match last {
            None => write!(points, "M{left} {y}"),
            Some(last) if last == y => Ok(()),
            Some(_) => write!(points, "H{end}V{y}"),
        };
        (last, end) = (Some(y), right);
    }
    if last.is_some() {
        let _ = write!(points, "H{end}");
    }
    points
}

/// The same, closed along `bottom`; nothing if it is at the bottom everywhere.
pub fn area(left: Px, bottom: Px, columns: &[(Px, Px)]) -> String {
    if columns.iter().all(|(_, y)| *y == bottom) {
        return String::new();
    }
    let line = steps(left, columns.iter().copied());
    format!("{line}V{bottom}H{left}Z")
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            // Not in XML, not even as a reference.
            '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => {
                escaped.push('\u{fffd}');
            }
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::{Px, Svg, area, px, steps};

    #[test]
    fn a_document_has_both_color_schemes_and_words_for_screen_readers() {
        let mut svg = Svg::new(30, 20, "a < b", "c & d\u{1}");
        svg.text("small", Px(15), px(2), "<x>");
        let svg = svg.end();
        for part in [
            "role=\"img\"",
            "<title>a &lt; b</title>",
            "<desc>c &amp; d\u{fffd}</desc>",
            "@media(prefers-color-scheme:dark){",
            "<text class=\"small\" x=\"1.5\" y=\"2\">&lt;x&gt;</text>",
        ] {
            assert!(svg.contains(part), "no {part} in {svg}");
        }
        assert!(!svg.contains(['#', '%', '\'']), "{svg}");
        let classes = [
            "paper", "grid", "offered", "admitted", "denied", "over", "limit",
        ];
        let (light, dark) = svg.split_once("@media").expect("both");
        for class in classes {
            let rule = format!("\n.{class}{{");
            assert!(light.contains(&rule) && dark.contains(&rule), "{class}");
        }
    }

    #[test]
    fn steps_join_columns_of_one_level() {
        let columns = [(px(1), px(9)), (px(2), px(9)), (px(3), px(4))];
        assert_eq!(steps(px(0), columns), "M0 9H2V4H3");
        assert_eq!(area(px(0), px(9), &columns), "M0 9H2V4H3V9H0Z");
        assert_eq!(area(px(0), px(9), &columns[..2]), "");
        assert_eq!(steps(px(0), []), "");
    }
}
