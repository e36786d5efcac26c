//! The picture of `docs/synced.md`: bars of what was admitted over Redis, with lines at the bounds.

use replay::svg::{Px, Svg, px};

const TITLE: &str = "What 2 to 8 processes admitted over Redis, as a multiple of the limit";
const LEFT: u64 = 56;
/// Above it is the title, below it are the names.
const TOP: u64 = 40;
const HEIGHT: u64 = 200;
const BOTTOM: u64 = TOP + HEIGHT;
/// For the name of the line at the limit.
const RIGHT: u64 = 50;
const BAR: u64 = 34;
const GAP: u64 = 24;

/// One bar of the picture.
struct Bar {
    name: String,
    /// Hundredths of the limit.
    admitted: u64,
    bound: u64,
}

/// The bars of one interval.
struct Group {
    interval: String,
    bars: Vec<Bar>,
}

/// Draws the first table of the page, without the limits that have a strict budget. The same bytes for
/// the same page.
pub(crate) fn picture(page: &str) -> String {
    let groups = groups(page);
    let most = groups.iter().flat_map(|group| &group.bars);
    let most = most.map(|bar| bar.admitted.max(bar.bound)).max();
    let most = most.unwrap_or_default().div_ceil(100).max(1);
    let y = |hundredths: u64| Px(BOTTOM * 10 - hundredths * HEIGHT * 10 / (most * 100));
    let bars: u64 = groups.iter().map(|group| group.bars.len() as u64).sum();
    let width = LEFT + BAR * bars + GAP * groups.len() as u64 + RIGHT;
    let mut svg = Svg::new(width, BOTTOM + 134, TITLE, &in_words(&groups));
    svg.text("title", px(LEFT), px(22), TITLE);
    svg.text_upwards(px(16), px(TOP + HEIGHT / 2), "admitted (bar), bound (dots)");
    let right = width - RIGHT;
    for multiple in (0..=most).step_by(5) {
        let at = y(multiple * 100);
        svg.path("grid", &format!("M{LEFT} {at}H{right}"));
        svg.text("end", px(LEFT - 6), Px(at.0 + 40), &multiple.to_string());
    }
    let limit = y(100);
    svg.path("grid", &format!("M{LEFT} {limit}H{right}"));
    svg.text("small", px(right + 4), Px(limit.0 + 30), "the limit");
    let mut left = LEFT;
    for Group { interval, bars } in &groups {
        svg.text("name", px(left), px(BOTTOM + 124), interval);
        for bar in bars {
            let (top, bound, end) = (y(bar.admitted), y(bar.bound), left + BAR - 8);
            svg.path(
                "admitted",
                &format!("M{left} {BOTTOM}V{top}H{end}V{BOTTOM}Z"),
            );
            svg.path("limit", &format!("M{left} {bound}H{end}"));
            svg.text_upwards(px(left + 17), px(BOTTOM + 54), &bar.name);
            left += BAR;
        }
        left += GAP;
    }
    svg.end()
}

/// The columns of the first table.
fn groups(page: &str) -> Vec<Group> {
    let cells = |line: &str| -> Vec<String> {
        let cells = line.trim_matches('|').split('|');
        cells.map(|cell| cell.trim().replace('`', "")).collect()
    };
    let mut rows = page.lines().skip_while(|line| !line.starts_with('|'));
    let mut groups: Vec<_> = cells(rows.next().unwrap_or_default())
        .into_iter()
        .skip(1)
        .map(|interval| Group {
            interval: format!("interval {interval}"),
            bars: Vec::new(),
        })
        .collect();
    let rows = rows.skip(1).take_while(|line| line.starts_with('|'));
    for row in rows.filter(|row| !row.contains("strict_budget")) {
        let row = cells(row);
        for (group, cell) in groups.iter_mut().zip(&row[1..]) {
            let mut figures = cell.split(' ').filter_map(hundredths);
            if let (Some(admitted), Some(bound)) = (figures.next(), figures.next()) {
                let name = row[0].clone();
                group.bars.push(Bar {
                    name,
                    admitted,
                    bound,
                });
            }
        }
    }
    groups
}

/// `1.35` as 135; nothing for other words.
fn hundredths(word: &str) -> Option<u64> {
    let (whole, part) = word.split_once('.')?;
    Some(whole.parse::<u64>().ok()? * 100 + part.parse::<u64>().ok()?)
}

/// What the picture shows, for a reader who cannot see it.
fn in_words(groups: &[Group]) -> String {
    let sentence = |group: &Group| {
        let most = group.bars.iter().max_by_key(|bar| bar.admitted)?;
        let (interval, Bar { name, .. }) = (&group.interval, most);
        let [admitted, bound] = [most.admitted, most.bound].map(|figure| {
            let (whole, part) = (figure / 100, figure % 100);
            format!("{whole}.{part:02}")
        });
        Some(format!(
            "{interval}: {name} admitted most, {admitted} of at most {bound} times its limit."
        ))
    };
    let sentences: Vec<_> = groups.iter().filter_map(sentence).collect();
    sentences.join(" ")
}

#[cfg(test)]
mod tests {
    use super::picture;

    #[test]
    fn the_stored_picture_shows_the_stored_page() {
        let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
        let read = |name: &str| std::fs::read_to_string(format!("{docs}/{name}")).expect("stored");
        let stored = read("img/synced.svg");
        assert!(
            stored == picture(&read("synced.md")),
            "the picture is an old one"
        );
    }
}
