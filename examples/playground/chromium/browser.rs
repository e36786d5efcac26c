//! Headless Chromium over its debugging protocol.
//!
//! With `--remote-debugging-pipe`, Chromium reads commands from file descriptor 3 and writes answers
//! and events to 4. Each is a line of JSON that ends with a zero byte.

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::Duration,
};

use serde_json::{Value, json};

/// The longest time for one answer.
const PATIENCE: Duration = Duration::from_secs(45);

/// A browser with one page. It ends when it is dropped.
pub(crate) struct Browser {
    child: Child,
    commands: ChildStdin,
    messages: Receiver<Value>,
    last: u64,
    session: Option<String>,
    /// Errors in the console, and exceptions.
    errors: Vec<String>,
}

impl Browser {
    /// Starts Chromium. `profile` is an empty folder.
    pub(crate) fn start(profile: &Path) -> Self {
        let program = std::env::var("CHROMIUM").unwrap_or_else(|_| "chromium".to_owned());
        let mut child = Command::new("sh")
            .args([
                "-c",
                "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1",
            ])
            .arg(program)
            .args([
                "--headless=new",
                "--remote-debugging-pipe",
                "--no-first-run",
            ])
            // Root has no sandbox; the only page is ours.
            .args(["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh starts");
        let commands = child.stdin.take().expect("stdin is a pipe");
        let answers = child.stdout.take().expect("stdout is a pipe");
        let (sender, messages) = channel();
        thread::spawn(move || {
            for message in BufReader::new(answers).split(0) {
                let Ok(message) = message else { return };
                let message = serde_json::from_slice(&message).expect("Chromium writes JSON");
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let mut browser = Self {
            child,
            commands,
            messages,
            last: 0,
            session: None,
            errors: Vec::new(),
        };
        let target = browser.call("Target.createTarget", &json!({ "url": "about:blank" }));
        let target = json!({ "targetId": target["targetId"], "flatten": true });
        let session = browser.call("Target.attachToTarget", &target);
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), &json!({}));
        }
        browser
    }

    /// Sends a command; returns its result.
    pub(crate) fn call(&mut self, method: &str, params: &Value) -> Value {
        self.last += 1;
        let mut command = json!({ "id": self.last, "method": method, "params": params });
        if let Some(session) = &self.session {
            command["sessionId"] = json!(session);
        }
        let mut command = command.to_string().into_bytes();
        command.push(0);
        self.commands
            .write_all(&command)
            .expect("Chromium runs: is it installed?");
        loop {
            let message = self.messages.recv_timeout(PATIENCE);
            let mut message = message.unwrap_or_else(|error| panic!("{method}: {error}"));
            if message["id"] == json!(self.last) {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].take();
            }
            self.event(&message);
        }
    }

    /// Keeps errors.
    fn event(&mut self, message: &Value) {
        let params = &message["params"];
        let is_error = match message["method"].as_str() {
            Some("Runtime.exceptionThrown") => true,
            Some("Runtime.consoleAPICalled") => ["error", "warning", "assert"]
                .contains(&params["type"].as_str().unwrap_or_default()),
            Some("Log.entryAdded") => ["error", "warning"]
                .contains(&params["entry"]["level"].as_str().unwrap_or_default()),
            _ => false,
        };
        if is_error {
            self.errors.push(params.to_string());
        }
    }

    /// The errors so far.
    pub(crate) fn take_errors(&mut self) -> Vec<String> {
        std::mem::take(&mut self.errors)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
