//! No text makes the reader panic.

use test_support::random::Random;
use tower_throttle::policy::PolicyFile;

/// Pieces of files, right and wrong.
const PIECES: [&str; 28] = [
    "version = 1\n",
    "version = \"1\"\n",
    "[[limit]]\n",
    "[limit]\n",
    "limit = 3\n",
    "name = \"a\"\n",
    "name = {}\n",
    "limit = \"token_bucket 10/s; burst=50\"\n",
    "limit = [\"lockout 5/s\", 4]\n",
    "key = \"client_ip\"\n",
    "key = [\"client_ip\", [\"bearer\"]]\n",
    "match = { path = \"/{a\", methods = 3 }\n",
    "except = \"b\"\n",
    "except = []\n",
    "[lists]\n",
    "b = { cidrs = [\"10.0.0.0/8\"] }\n",
    "b = { file = 1, cidrs = {} }\n",
    "[stores]\n",
    "lists = 1\n",
    "stores = [1]\n",
    "[[deny]]\n",
    "list = \"b\"\n",
    "failure = [401, \"x\"]\n",
    "capacity = 99999999999999999999\n",
    "missing = 1979-05-27\n",
    "missing = nan\n",
    "x.y.z = '''\n",
    "\u{0}ü\u{1F600}\"",
];

/// Shows promise 221.
#[test]
fn no_text_makes_the_reader_panic() {
    let mut random = Random::new(3);
    let mut below = |end| random.index(end);
    let mut refused = 0;
    for _ in 0..20_000 {
        let mut text = String::new();
        for _ in 0..below(12) {
            text += PIECES[below(PIECES.len())];
        }
        if below(5) == 0 {
            let cut = (0..=below(text.len() + 1))
                .rev()
                .find(|at| text.is_char_boundary(*at));
            text.truncate(cut.unwrap());
        }
        if let Err(problems) = PolicyFile::from_toml(&text) {
            refused += 1;
            let (problems, lines) = (problems.to_string(), text.lines().count());
            let found = problems.lines().filter_map(|problem| {
                let (line, _) = problem.strip_prefix("line ")?.split_once(": ")?;
                line.parse().ok()
            });
            let found: Vec<usize> = found.collect();
            // A text that ends where a value is expected has its problem after the last line.
            let is_there = |line| (1..=lines + 1).contains(line);
            assert!(
                !found.is_empty() && found.iter().all(is_there),
                "{problems}\n{text}"
            );
        }
        let _ = serde_json::from_str::<PolicyFile>(&text);
        let _ = serde_norway::from_str::<PolicyFile>(&text);
    }
    assert!(refused > 15_000, "{refused}");
}
