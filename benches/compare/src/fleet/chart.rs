//! The table and the picture of `src/guide/fleets.md`: the processor time of the server over the number of
//! machines.

use std::fmt::Write;

use replay::svg::{Px, Svg, px};

use super::case::Mode;

const PAGE: &str = "src/guide/fleets.md";
const PICTURE: &str = "docs/img/fleets.svg";
const TITLE: &str = "Redis under twice the limit: percent of a processor";
const HEAD: &str = "| machines | exact | synced | leased |\n|---|---|---|---|\n";
const CLASSES: [&str; 3] = ["line admitted", "line other", "line denied"];
const NAMES: [&str; 3] = ["exact", "synced", "leased"];
const LEFT: u64 = 56;
const TOP: u64 = 48;
const HEIGHT: u64 = 200;
const BOTTOM: u64 = TOP + HEIGHT;
const STEP: u64 = 70;

/// Replaces the table in the page, and draws it.
pub(super) fn write(cpu: impl Fn(Mode, u64) -> Option<f64>) {
    let page = std::fs::read_to_string(PAGE).expect(PAGE);
    let (before, rest) = page.split_once(HEAD).expect("the table");
    let mut table = String::new();
    for machines in [1, 2, 4, 8, 16, 32, 64] {
        let _ = write!(table, "| {machines} |");
        for mode in [Mode::Exact, Mode::Synced, Mode::Leased] {
            let cpu = cpu(mode, machines).expect("a whole run of the part `machines`");
            let _ = write!(table, " {cpu:.1} |");
        }
        table.push('\n');
    }
    let end = rest.find("\n\n").map_or(rest.len(), |end| end + 1);
    let page = format!("{before}{HEAD}{table}{}", &rest[end..]);
    std::fs::write(PICTURE, picture(&page)).expect(PICTURE);
    std::fs::write(PAGE, page).expect(PAGE);
}

/// The rows of the table: the number of machines, and tenths of a percent.
fn figures(page: &str) -> Vec<[u64; 4]> {
    let (_, table) = page.split_once(HEAD).expect("the table");
    let rows = table.lines().take_while(|line| line.starts_with('|'));
    let cell = |text: &str| text.replace('.', "").trim().parse().expect("a number");
    rows.map(|row| {
        let cells: Vec<u64> = row.trim_matches('|').split('|').map(cell).collect();
        cells.try_into().expect("four columns")
    })
    .collect()
}

/// The same bytes for the same page.
fn picture(page: &str) -> String {
    let rows = figures(page);
    let most = rows.iter().flat_map(|row| &row[1..]).max();
    // Tens of percent.
    let most = most.copied().unwrap_or_default().div_ceil(100).max(1);
    let y = |tenths: u64| Px(BOTTOM * 10 - tenths * HEIGHT / (most * 10));
    let x = |index: usize| LEFT + 20 + STEP * index as u64;
    let right = x(rows.len().saturating_sub(1));
    let last = rows.last().copied().unwrap_or_default();
    let percent = |tenths: u64| format!("{}.{}", tenths / 10, tenths % 10);
    let said = NAMES.iter().zip(&last[1..]);
    let said: Vec<_> = said
        .map(|(name, tenths)| format!("{name} {} percent", percent(*tenths)))
        .collect();
    let said = format!("With {} machines: {}.", last[0], said.join(", "));
    let mut svg = Svg::new(right + 90, BOTTOM + 50, TITLE, &said);
    svg.text("title", px(LEFT), px(24), TITLE);
    for tens in 0..=most {
        let at = y(tens * 100);
        svg.path("grid", &format!("M{LEFT} {at}H{right}"));
        svg.text(
            "end",
            px(LEFT - 6),
            Px(at.0 + 40),
            &format!("{}", tens * 10),
        );
    }
    for (index, row) in rows.iter().enumerate() {
        svg.text("middle", px(x(index)), px(BOTTOM + 18), &row[0].to_string());
    }
    svg.text("end", px(right), px(BOTTOM + 40), "machines");
    // The names are at the ends of the lines, and do not cover each other.
    let mut ends: Vec<_> = (0..NAMES.len()).map(|at| (last[at + 1], at)).collect();
    ends.sort_unstable();
    let mut lowest = BOTTOM * 10 + 180;
    for (tenths, at) in ends {
        let line = rows
            .iter()
            .enumerate()
            .fold(String::new(), |mut line, (index, row)| {
                let command = if index == 0 { 'M' } else { 'L' };
                let _ = write!(line, "{command}{} {}", x(index), y(row[at + 1]));
                line
            });
        svg.path(CLASSES[at], &line);
        lowest = (lowest - 140).min(y(tenths).0 + 40);
        svg.text("name", px(right + 8), Px(lowest), NAMES[at]);
    }
    svg.end()
}

#[cfg(test)]
mod tests {
    use super::{PAGE, PICTURE, picture};

    #[test]
    fn the_stored_picture_shows_the_stored_page() {
        let read = |path: &str| {
            let path = format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"));
            std::fs::read_to_string(path).expect("stored")
        };
        assert!(
            read(PICTURE) == picture(&read(PAGE)),
            "the picture is an old one"
        );
    }
}
