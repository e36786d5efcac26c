//! The allowed name that is nearest to a misspelt one.

/// The name in `names` that `text` probably means: at most a third of its letters differ.
pub(super) fn nearest<'a>(text: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // A longer text is no misspelt name, and comparing it would take long.
    if text.len() > 64 {
        return None;
    }
    let text = text.to_lowercase().replace('-', "_");
    let distances = names.into_iter().map(|name| (distance(&text, name), name));
    let (distance, name) = distances.min()?;
    (distance <= name.len().div_ceil(3)).then_some(name)
}

/// How many letters have to be inserted, removed, replaced or swapped with the next one.
pub(super) fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(before[j - 2] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

/// `; did you mean NAME?`, if a name is near.
pub(super) fn did_you_mean<'a>(text: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    nearest(text, names).map_or_else(String::new, |name| format!("; did you mean {name}?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_has_a_nearest_one_and_another_word_has_none() {
        let names = ["token_bucket", "leaky_bucket", "fixed_window"];
        assert_eq!(nearest("token_buket", names), Some("token_bucket"));
        assert_eq!(nearest("Token-Bucket", names), Some("token_bucket"));
        assert_eq!(nearest("fixed_widnow", names), Some("fixed_window"));
        assert_eq!(nearest("semaphore", names), None);
        assert_eq!(nearest("", names), None);
        assert_eq!(nearest(&"x".repeat(10_000), names), None);
        assert_eq!(distance("limt", "limit"), 1);
        assert_eq!(distance("limti", "limit"), 1);
    }
}
