//! The alerts of `docs/alerts.yml`, as far as these tests ask them.

use crate::operator::measured::Measured;

/// The part of the rule of an alert that names a metric with labels: `NAME{LABEL="VALUE"}`.
fn selector(alert: &str) -> (String, String) {
    let rules = include_str!("../../../docs/alerts.yml");
    let (_, rule) = rules
        .split_once(&format!("- alert: {alert}\n"))
        .expect("an alert of this name");
    let (before, rest) = rule.split_once('{').expect("labels");
    let name = before.rsplit('(').next().expect("a name");
    let (labels, _) = rest.split_once('}').expect("labels");
    let is_right = !labels.contains([',', '~']);
    assert!(is_right, "one label, compared as it is: {labels}");
    (name.to_owned(), labels.replace('"', ""))
}

/// How often the counter of an alert has been incremented for this store. The alert fires above zero.
pub(crate) fn counted(alert: &str, store: &str, metrics: &Measured) -> f64 {
    let (name, label) = selector(alert);
    metrics.value(&format!("{name} store={store} {label}"))
}

/// Shows promise 97.
#[test]
fn the_alert_on_refusals_is_one_of_a_counter_of_permanent_errors() {
    let (name, label) = selector("ThrottleStorePermanentErrors");
    assert_eq!(name, "tower_throttle_store_errors_total");
    assert_eq!(label, "class=permanent");
}
