//! The page in headless Chromium: `tests/run playground`.
//!
//! `PICTURES=docs/img` keeps the screenshots there.

mod browser;
mod page;

use std::{
    env, fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use serde_json::json;

use crate::browser::Browser;

/// The greatest size of a picture in the documentation.
const MAX_PICTURE: usize = 35_000;

/// The program, on a free port. It ends when this is dropped.
struct Server {
    program: Child,
    url: String,
}

impl Server {
    fn start() -> Self {
        let test = env::current_exe().expect("the path of the test");
        let profile = test.ancestors().nth(2).expect("target/PROFILE/deps");
        let mut program = Command::new(profile.join("examples/playground"))
            .arg("127.0.0.1:0")
            .stdout(Stdio::piped())
            .spawn()
            .expect("`cargo build --example playground` has made it");
        let output = program.stdout.take().expect("it is a pipe");
        let mut url = String::new();
        let line = BufReader::new(output).read_line(&mut url);
        line.expect("the program prints its address");
        let url = format!("{}/", url.trim_end());
        Self { program, url }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

/// A browser with the page, the server, and the folder of this test.
fn start(name: &str, fragment: &str) -> (Browser, Server, PathBuf) {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("chromium-{name}"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder");
    let server = Server::start();
    let mut browser = Browser::start(&folder);
    browser.resize(1200, 900, false);
    browser.open(&format!("{}{fragment}", server.url));
    (browser, server, folder)
}

/// Where pictures for the documentation go. It is the folder of the test unless `PICTURES` is set.
///
/// A path in `PICTURES` begins at the root of the repository.
fn pictures(folder: &Path) -> PathBuf {
    match env::var_os("PICTURES") {
        Some(kept) => Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../..")
            .join(kept),
        None => folder.to_owned(),
    }
}

/// Takes a picture of the window from this element on.
fn picture(browser: &mut Browser, path: &Path, from: &str) {
    browser.eval(&format!(
        "document.querySelector('{from}').scrollIntoView()"
    ));
    let size = browser.screenshot(path);
    let allowed = 5_000..MAX_PICTURE;
    assert!(
        allowed.contains(&size),
        "{} has {size} bytes",
        path.display()
    );
}

const OVERLOAD: &str = "#policy=token_bucket+10%2Fs%3B+burst%3D20&policy=fixed_window+10%2Fs\
    &policy=leaky_bucket+10%2Fs%3B+burst%3D1%3B+queue%3D8&rate=40&burst=10&clients=2&cost=1&important=75";

fn denied(policy: usize) -> String {
    format!(
        "Number(document.querySelectorAll('#lanes .card')[{policy}].querySelector('dd.denied').textContent) > 10"
    )
}

#[test]
fn overload_shows_denials_and_the_answers_in_both_forms() {
    let (mut browser, _server, folder) = start("overload", OVERLOAD);
    browser.click("#start");
    for policy in 0..3 {
        browser.wait_for(&denied(policy));
    }
    // The queue: admitted after a wait, and a longest wait.
    browser.wait_for("Number(document.querySelectorAll('#lanes .card')[2].querySelector('dd.queued').textContent) > 10");
    let denied = browser
        .text("#lanes .card details pre[aria-label='Last answer to a denied request, HTTP']");
    assert!(
        denied.starts_with("HTTP/1.1 429 Too Many Requests\n"),
        "{denied}"
    );
    assert!(
        denied.contains("\nretry-after: 1\n") && denied.contains("\nratelimit: "),
        "{denied}"
    );
    let grpc = browser
        .text("#lanes .card details pre[aria-label='Last answer to a denied request, gRPC']");
    assert!(
        grpc.contains("grpc-status: 8\n") && grpc.contains("\nretry_delay: 0."),
        "{grpc}"
    );

    // Ten full seconds in the charts.
    browser.wait_for(
        "document.querySelectorAll('#lanes .card')[0].querySelectorAll('svg rect').length > 12",
    );
    browser.resize(1200, 420, true);
    picture(
        &mut browser,
        &folder.join("playground-dark.webp"),
        ".legend",
    );
    browser.resize(1200, 420, false);
    let path = pictures(&folder).join("playground.webp");
    picture(&mut browser, &path, ".legend");

    browser.click("#stop");
    browser.wait_for("document.querySelector('#status').textContent.startsWith('The traffic has stopped. token_bucket 10/s; burst=20: ')");
    assert_eq!(browser.take_errors(), [""; 0]);
}

/// The number of a card, and what it has counted since the last event.
fn counts(browser: &mut Browser, card: usize, kind: &str) -> [u64; 2] {
    let text = browser.eval(&format!(
        "document.querySelectorAll('#lanes .card')[{card}].querySelector('dd.{kind}').textContent"
    ));
    let mut numbers = text.as_str().unwrap_or_default().split([' ', '(', ')']);
    let mut next = || numbers.find_map(|number| number.parse().ok()).unwrap_or(0);
    [next(), next()]
}

#[test]
fn the_line_shows_important_requests_before_those_that_came_earlier() {
    let policy = "#policy=token_bucket+1%2Fs%3B+burst%3D1%3B+queue%3D9";
    let (mut browser, _server, _) = start("line", policy);
    let line = "[...document.querySelectorAll('#lanes .queue li')].map((one) => one.textContent.split(',')[0])";
    for _ in 0..4 {
        browser.click("#one");
    }
    browser.wait_for(&format!("{line}.length >= 2"));
    browser.click("#one-important");
    browser.wait_for(&format!(
        "{line}[0] === '#5 important' && {line}.length > 1"
    ));
    browser.wait_for(&format!("{line}.length === 0"));
    assert_eq!(counts(&mut browser, 0, "queued")[0], 4);
    assert_eq!(browser.take_errors(), [""; 0]);
}

const FLEET: &str = "#policy=token_bucket+30%2Fs%3B+burst%3D60&rate=100&scene=leased";

#[test]
fn three_machines_share_a_limit_through_an_outage() {
    let (mut browser, _server, folder) = start("fleet", FLEET);
    let cards =
        browser.eval("[...document.querySelectorAll('#lanes h3')].map((one) => one.textContent)");
    let machines = ["Machine 1", "Machine 2", "Machine 3"];
    let [one, all] = ["One process with all requests", "Three machines together"];
    assert_eq!(
        cards,
        json!([one, all, machines[0], machines[1], machines[2]])
    );
    browser.click("#start");
    browser.wait_for(&denied(1));
    browser.click("#outage");
    browser.wait_for(
        "document.querySelector('#status').textContent.startsWith('Stop the store: done.')",
    );
    // What they hold, and then their shares, each of which begins with a third of the burst.
    let most = |one: u64| one + 60 + 30;
    let since = |atleast: u64| {
        format!(
            "Number(document.querySelectorAll('#lanes .card')[1].querySelector('dd.admitted').textContent.split('(')[1].slice(0, -1)) > {atleast}"
        )
    };
    browser.wait_for(&since(250));
    let [[_, one], [_, all]] = [0, 1].map(|card| counts(&mut browser, card, "admitted"));
    assert!(all <= most(one), "{all} beside {one}");
    browser.click("#recovery");
    browser.wait_for(
        "document.querySelector('#status').textContent.startsWith('Start the store: done.')",
    );
    browser.wait_for(&since(250));
    let [[total_of_one, one], [total, all]] =
        [0, 1].map(|card| counts(&mut browser, card, "admitted"));
    assert!(all <= most(one), "{all} beside {one}");
    assert!(
        total <= most(most(total_of_one)),
        "{total} beside {total_of_one}"
    );
    browser.resize(1200, 310, false);
    let path = pictures(&folder).join("playground-fleet.webp");
    picture(&mut browser, &path, ".legend");
    // Another mode begins anew, and a policy that it refuses says so.
    browser.choose_scene("synced");
    browser.wait_for("location.hash.includes('scene=synced') && document.querySelectorAll('#lanes .card').length === 5");
    browser.type_into("#policy-1", "lockout 5/min");
    browser.wait_for(
        "document.querySelector('#status').textContent.startsWith('Policy 1 in a fleet: ')",
    );
    refusals_only(&mut browser);
}

#[test]
fn a_saved_state_goes_on_after_a_restart_and_one_that_is_not_saved_does_not() {
    let policy = "#policy=fixed_window+100%2Fd&rate=50&scene=restart";
    let (mut browser, _server, folder) = start("restart", policy);
    browser.click("#start");
    browser.wait_for(&denied(0));
    browser.click("#restart");
    browser.wait_for(
        "document.querySelector('#status').textContent.startsWith('Restart two servers: done.')",
    );
    let admitted =
        |browser: &mut Browser| [0, 1, 2].map(|card| counts(browser, card, "admitted")[1]);
    while admitted(&mut browser) != [0, 0, 100] {
        browser.wait_for("new Promise((resolve) => setTimeout(() => resolve(true), 50))");
    }
    browser.resize(1200, 310, false);
    let path = pictures(&folder).join("playground-restart.webp");
    picture(&mut browser, &path, ".legend");
    assert_eq!(browser.take_errors(), [""; 0]);
}

#[test]
fn traffic_to_begin_with_starts_at_once() {
    let (mut browser, _server, _) = start("presets", "");
    browser.click("#presets button:nth-child(3)");
    assert_eq!(browser.eval("document.querySelector('#burst').value"), "40");
    browser.wait_for(&denied(1));
    // Another one while it runs.
    browser.click("#presets button:nth-child(1)");
    browser.wait_for("document.querySelector('#burst').value === '1' && document.querySelector('#start').disabled");
    assert_eq!(browser.take_errors(), [""; 0]);
}

#[test]
fn typing_a_policy_changes_the_cards_and_a_bad_one_shows_its_error() {
    let (mut browser, _server, _) = start("typing", "");
    browser.type_into("#policy-1", "sliding_log 3/min");
    browser
        .wait_for("document.querySelector('#lanes h3 code').textContent === 'sliding_log 3/min'");
    browser.click("#one");
    browser
        .wait_for("document.querySelector('#lanes .clients').textContent.startsWith('Client 1: 2 of 3, all in ')");

    browser.type_into("#policy-1", "sliding_logg 3/min");
    browser.wait_for("document.querySelector('#policy-1').getAttribute('aria-invalid') === 'true'");
    let error = browser.text("#policy-error-1");
    assert!(error.contains("sliding_log"), "{error}");
    assert_eq!(
        browser.eval("document.querySelector('#policy-1').getAttribute('aria-describedby')"),
        "policy-error-1"
    );
    // The cards keep the last valid policies.
    assert_eq!(browser.text("#lanes h3 code"), "sliding_log 3/min");
    assert_eq!(browser.take_errors(), [""; 0]);
}

#[test]
fn a_link_restores_the_setting() {
    let (mut browser, server, _) = start("link", "");
    browser.type_into("#policy-2", "sliding_window 7/min");
    browser.wait_for(
        "document.querySelectorAll('#lanes h3 code')[1].textContent === 'sliding_window 7/min'",
    );
    browser.type_into("#traffic input[type=number]", "33");
    let link = browser.eval("location.hash");
    let link = link.as_str().unwrap_or_default();
    browser.open(&format!("{}{link}", server.url));
    assert_eq!(
        browser.eval("document.querySelector('#policy-2').value"),
        "sliding_window 7/min"
    );
    assert_eq!(browser.eval("document.querySelector('#rate').value"), "33");
    assert_eq!(
        browser.eval("document.querySelectorAll('#lanes .card').length"),
        json!(3)
    );
    assert_eq!(browser.take_errors(), [""; 0]);
}

/// Presses Tab until the element has the focus; it and all before it show that they have it.
fn tab_to(browser: &mut Browser, selector: &str) {
    for _ in 0..80 {
        browser.press("Tab");
        let outline = browser.eval("getComputedStyle(document.activeElement).outlineStyle");
        let element = browser.eval("document.activeElement.outerHTML.slice(0, 80)");
        assert_ne!(outline, "none", "the focus is invisible on {element}");
        if browser.eval(&format!("document.activeElement.matches({selector:?})")) == json!(true) {
            return;
        }
    }
    panic!("Tab never reaches {selector}");
}

#[test]
fn the_keyboard_reaches_everything() {
    let (mut browser, _server, _) = start("keyboard", OVERLOAD);
    tab_to(&mut browser, "#policy-1");
    tab_to(&mut browser, "#add");
    tab_to(&mut browser, "#rate");
    browser.press("ArrowRight");
    browser.wait_for("document.querySelector('#traffic input[type=number]').value === '41'");
    tab_to(&mut browser, "#start");
    browser.press("Enter");
    browser.wait_for(&denied(0));
    // The button that had the focus is disabled now.
    browser.wait_for("document.activeElement.id === 'stop'");
    browser.press(" ");
    browser.wait_for("document.activeElement.id === 'start'");
    tab_to(&mut browser, "#lanes .card summary");
    browser.press("Enter");
    browser.wait_for("document.querySelector('#lanes .card details table tbody tr') !== null");
    tab_to(&mut browser, "#what-if button");
    assert_eq!(browser.take_errors(), [""; 0]);
}

/// Each control has a name, each chart a description, and the status is a live region.
#[test]
fn a_screen_reader_finds_names_and_descriptions() {
    let (mut browser, _server, _) = start("names", OVERLOAD);
    browser.click("#start");
    browser.wait_for(&denied(0));
    let unnamed = browser.eval(
        "[...document.querySelectorAll('button, input, select, [role=img], [role=region], article')]
            .filter((one) => !(one.getAttribute('aria-label') || one.labels?.length
                || document.getElementById(one.getAttribute('aria-labelledby')) || one.textContent.trim()))
            .map((one) => one.outerHTML)",
    );
    assert_eq!(unnamed, json!([]));
    let tree = browser.call("Accessibility.getFullAXTree", &json!({}));
    let nodes = tree["nodes"].as_array().expect("nodes").clone();
    let names = |role: &str| -> Vec<String> {
        let named = nodes.iter().filter(|node| node["role"]["value"] == role);
        named
            .map(|node| {
                node["name"]["value"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned()
            })
            .collect()
    };
    assert!(
        names("slider").contains(&"Requests per second".to_owned()),
        "{:?}",
        names("slider")
    );
    assert!(
        names("textbox")
            .iter()
            .chain(&names("combobox"))
            .any(|name| name == "Policy 1")
    );
    assert!(
        names("image")
            .iter()
            .any(|name| name.starts_with("Requests per second. Since the start: "))
    );
    assert_eq!(names("article").len(), 3);
    // Samples arrive four times per second; the live regions say nothing about them.
    let chatty = browser.eval(
        "new Promise((resolve) => {
            let changes = 0;
            const live = document.querySelectorAll('[role=status], [role=alert], [aria-live]');
            const observer = new MutationObserver((list) => { changes += list.length; });
            for (const one of live) observer.observe(one, { childList: true, characterData: true, subtree: true });
            const card = document.querySelector('#lanes .card dd.denied');
            const first = Number(card.textContent);
            const look = () => Number(card.textContent) > first + 40 ? resolve(changes) : setTimeout(look, 20);
            look();
        })",
    );
    assert_eq!(chatty, json!(0));
    assert_eq!(browser.take_errors(), [""; 0]);
}

#[test]
fn a_phone_shows_everything_without_scrolling_sideways() {
    let (mut browser, _server, folder) = start("phone", OVERLOAD);
    browser.resize(360, 740, false);
    browser.click("#start");
    browser.wait_for(&denied(0));
    browser.eval("document.querySelectorAll('details').forEach((one) => { one.open = true; })");
    browser.click("#what-if button");
    browser.wait_for("document.querySelectorAll('#what-if-results .card').length === 3");
    browser.eval("document.querySelectorAll('details').forEach((one) => { one.open = true; })");
    let cut = browser.eval(
        "[...document.querySelectorAll('main *')]
            .filter((one) => (one.getBoundingClientRect().right > 360
                || one.matches('pre') && one.scrollWidth > one.clientWidth)
                && !one.closest('.scroll, .hidden'))
            .map((one) => one.outerHTML.slice(0, 80))",
    );
    assert_eq!(cut, json!([]));
    assert_eq!(
        browser.eval("document.documentElement.scrollWidth"),
        json!(360)
    );
    browser.eval("document.querySelectorAll('details').forEach((one) => { one.open = false; })");
    picture(
        &mut browser,
        &folder.join("playground-phone.webp"),
        "#results",
    );
    assert_eq!(browser.take_errors(), [""; 0]);
}

#[test]
fn what_if_shows_hours_at_once_and_what_would_have_happened_to_a_log() {
    let (mut browser, _server, folder) = start("what-if", OVERLOAD);
    browser.eval("document.querySelector('#duration').value = '3600'");
    browser.click("#what-if button");
    browser.wait_for("document.querySelectorAll('#what-if-results .card').length === 3");
    // The last burst is at 3599.75 s. Until then each of the two clients is granted by policy 1 its
    // 20 tokens and 35,997 more, by policy 2 10 per second, by policy 3 35,998 turns and 8 that wait.
    assert_eq!(
        browser.text("#what-if-status"),
        "144000 requests in 60 min. Policy 1 denied 71966. Policy 2 denied 72000. Policy 3 denied 71988."
    );
    browser.resize(1000, 640, false);
    picture(
        &mut browser,
        &folder.join("playground-what-if.webp"),
        "#what-if",
    );

    let log = folder.join("access.log");
    let line = "192.0.2.7 - - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.1\" 200 2326\n";
    fs::write(&log, line.repeat(25)).expect("the log is written");
    browser.choose_file("#log", &log);
    browser.wait_for("document.querySelector('input[name=source][value=log]').checked");
    browser.click("#what-if button");
    browser.wait_for(
        "document.querySelector('#what-if-status').textContent.startsWith('25 requests')",
    );
    assert_eq!(
        browser.text("#what-if-status"),
        "25 requests in 1 ms. Policy 1 denied 5. Policy 2 denied 15. Policy 3 denied 16."
    );
    let busiest = "#what-if-results .card .scroll[aria-label^='The clients'] tbody tr";
    assert_eq!(browser.text(busiest), "192.0.2.72005");
    assert_eq!(browser.take_errors(), [""; 0]);

    fs::write(&log, format!("{line}hello\n")).expect("the log is written");
    browser.choose_file("#log", &log);
    browser.click("#what-if button");
    browser.wait_for("document.querySelector('#what-if-error').textContent.startsWith('line 2: expected a client')");
    refusals_only(&mut browser);
}

#[test]
fn policies_are_added_up_to_four_and_removed() {
    let (mut browser, _server, _) = start("list", "");
    browser.click("#add");
    browser.wait_for("document.querySelectorAll('#lanes .card').length === 4");
    assert_eq!(browser.eval("document.activeElement.id"), "policy-4");
    assert_eq!(
        browser.eval("document.querySelector('#add').disabled"),
        json!(true)
    );
    for left in [3, 2, 1] {
        browser.click("#policies li:last-child button");
        browser.wait_for(&format!(
            "document.querySelectorAll('#lanes .card').length === {left}"
        ));
        assert_eq!(
            browser.eval("document.activeElement.id"),
            format!("policy-{left}")
        );
    }
    assert_eq!(
        browser.eval("document.querySelector('#policies button').disabled"),
        json!(true)
    );
    assert_eq!(browser.take_errors(), [""; 0]);
}

#[test]
fn bad_traffic_shows_its_error() {
    let (mut browser, _server, _) = start("traffic", "#rate=9000");
    browser.click("#start");
    browser.wait_for("document.querySelector('#traffic-error').textContent !== ''");
    assert_eq!(
        browser.text("#traffic-error"),
        "rate: expected 1 to 500 requests per second, found 9000"
    );
    refusals_only(&mut browser);
}

/// Chromium itself logs that the server refused a request; nothing else is in the console.
fn refusals_only(browser: &mut Browser) {
    let errors = browser.take_errors();
    let is_refusal = |error: &String| error.contains("status of 422");
    assert!(errors.iter().all(is_refusal), "{errors:?}");
}
