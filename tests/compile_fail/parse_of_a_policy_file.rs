//~ write `PolicyFile::from_toml(text)`
use tower_throttle::policy::PolicyFile;
fn main() {
    let _ = "version = 1".parse::<PolicyFile>();
}
