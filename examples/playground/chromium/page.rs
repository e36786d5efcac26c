//! What a user does with the page.

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::browser::Browser;

impl Browser {
    /// Opens an address, and waits until its scripts have run.
    pub(crate) fn open(&mut self, url: &str) {
        // Another address first: one that differs only after `#` would not load the page.
        self.call("Page.navigate", &json!({ "url": "about:blank" }));
        self.wait_for("location.href === 'about:blank'");
        self.call("Page.navigate", &json!({ "url": url }));
        self.wait_for("document.querySelectorAll('#lanes .card').length > 0");
    }

    /// The value of a JavaScript expression.
    pub(crate) fn eval(&mut self, expression: &str) -> Value {
        let mut result = self.call(
            "Runtime.evaluate",
            &json!({ "expression": expression, "awaitPromise": true, "returnByValue": true, "userGesture": true }),
        );
        let exception = &result["exceptionDetails"];
        assert!(exception.is_null(), "{expression}: {exception}");
        result["result"]["value"].take()
    }

    /// Waits until the expression is true.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, condition: &str) {
        let waiting = format!(
            "new Promise((resolve) => {{
                const end = performance.now() + 20_000;
                const look = () => {{
                    let holds = false;
                    try {{ holds = {condition}; }} catch {{}}
                    if (holds || performance.now() > end) resolve(holds);
                    else setTimeout(look, 20);
                }};
                look();
            }})"
        );
        assert_eq!(self.eval(&waiting), json!(true), "never true: {condition}");
    }

    /// The text of the first element that matches.
    pub(crate) fn text(&mut self, selector: &str) -> String {
        let text = self.eval(&format!("document.querySelector({selector:?}).textContent"));
        text.as_str().unwrap_or_default().to_owned()
    }

    /// Chooses what the routes stand for.
    pub(crate) fn choose_scene(&mut self, scene: &str) {
        self.eval(&format!(
            "{{ const select = document.querySelector('#scene'); select.value = '{scene}';
                select.dispatchEvent(new Event('change')); }}"
        ));
    }

    pub(crate) fn click(&mut self, selector: &str) {
        self.eval(&format!("document.querySelector({selector:?}).click()"));
    }

    /// Replaces the text of an input, as typing does.
    pub(crate) fn type_into(&mut self, selector: &str, text: &str) {
        self.eval(&format!(
            "{{ const input = document.querySelector({selector:?}); input.focus(); input.select(); }}"
        ));
        self.call("Input.insertText", &json!({ "text": text }));
    }

    /// Chooses a file.
    pub(crate) fn choose_file(&mut self, selector: &str, path: &Path) {
        let document = self.call("DOM.getDocument", &json!({}));
        let query = json!({ "nodeId": document["root"]["nodeId"], "selector": selector });
        let input = self.call("DOM.querySelector", &query);
        let files = json!({ "nodeId": input["nodeId"], "files": [path] });
        self.call("DOM.setFileInputFiles", &files);
    }

    /// Presses and releases a key: `Tab`, `Enter`, ` `.
    pub(crate) fn press(&mut self, key: &str) {
        let (code, text) = match key {
            "Tab" => (9, ""),
            "Enter" => (13, "\r"),
            "ArrowRight" => (39, ""),
            _ => (32, " "),
        };
        let mut event = json!({ "type": "keyDown", "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text });
        self.call("Input.dispatchKeyEvent", &event);
        event["type"] = json!("keyUp");
        self.call("Input.dispatchKeyEvent", &event);
    }

    /// Sets the size of the window, without bars to scroll, and whether the user prefers dark pages.
    pub(crate) fn resize(&mut self, width: u32, height: u32, dark: bool) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500 });
        self.call("Emulation.setDeviceMetricsOverride", &size);
        self.call("Emulation.setScrollbarsHidden", &json!({ "hidden": true }));
        let scheme = if dark { "dark" } else { "light" };
        let feature = json!({ "name": "prefers-color-scheme", "value": scheme });
        self.call(
            "Emulation.setEmulatedMedia",
            &json!({ "features": [feature] }),
        );
    }

    /// Writes a picture of the window as WebP. Returns its size in bytes.
    pub(crate) fn screenshot(&mut self, path: &Path) -> usize {
        let form = json!({ "format": "webp", "quality": 30 });
        let picture = self.call("Page.captureScreenshot", &form);
        let picture = base64(picture["data"].as_str().unwrap_or_default());
        fs::write(path, &picture).expect("the picture is written");
        picture.len()
    }
}

fn base64(text: &str) -> Vec<u8> {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bits, mut count, mut bytes) = (0_u32, 0, Vec::new());
    for byte in text.trim_end_matches('=').bytes() {
        let six = ALPHABET.iter().position(|other| *other == byte);
        bits = bits << 6 | u32::try_from(six.expect("base64")).expect("below 64");
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from(bits >> count & 0xff).expect("a byte"));
        }
    }
    bytes
}
