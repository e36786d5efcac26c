//! The fast path of a script, generated from the files of its limits.

/// Lua code that decides common calls.
#[derive(Clone, Copy, Debug)]
pub(super) struct FastPath {
    /// The functions it has in common with the full path. Calls of them are on lines of their own that
    /// assign the results, to variables with other names than those in the function.
    pub(super) shared: &'static str,
    /// Its sections; lua/fast/prelude.lua describes them.
    pub(super) source: &'static str,
    /// The index of the first parameter that it reads.
    pub(super) first_param: usize,
}

/// More limits have no fast path: its local variables would be too many.
pub(super) const MAX_FAST_PARTS: usize = 8;

/// A section of a file: what is on its first line, and the code below it.
#[derive(Clone, Copy, Default)]
struct Section<'a> {
    list: &'a str,
    code: &'a str,
}

impl<'a> Section<'a> {
    fn of(source: &'a str, name: &str) -> Self {
        /// What the first line of a section begins with, after its name.
        const SECTIONS: [&str; 7] = [
            "-- Parameters: ",
            "-- Arguments: ",
            "-- State: ",
            "-- Reply: ",
            "-- Next: ",
            "-- Unused at: ",
            "-- Same expiry: ",
        ];
        let Some((_, rest)) = source.split_once(&format!("-- {name}: ")) else {
            return Self::default();
        };
        let (list, rest) = rest.split_once('\n').unwrap_or((rest, ""));
        let ends = SECTIONS.iter().filter_map(|section| rest.find(section));
        let code = &rest[..ends.min().unwrap_or(rest.len())];
        Self { list, code }
    }

    /// The names of its list, each with the number of the limit.
    fn numbered_names(self) -> String {
        let names = self.list.split(", ");
        names
            .map(|name| format!("{name}_N"))
            .collect::<Vec<_>>()
            .join(", ")
    }

    fn len(self) -> usize {
        self.list.split(", ").count()
    }

    /// The format of its list in `struct.pack`.
    fn doubles(self) -> String {
        "d".repeat(self.len())
    }
}

/// What the limits add to lua/fast/single.lua or lua/fast/batch.lua.
#[derive(Default)]
struct Frame {
    arguments: Vec<String>,
    argument_doubles: String,
    on_change: String,
    places: Vec<String>,
    missing: String,
    limits: String,
    writes: String,
}

impl Frame {
    fn fill(&self, frame: &str) -> String {
        let read = include_str!("lua/fast/read.lua").replace("MISSING", &self.missing);
        frame
            .replace("ARGUMENT_DOUBLES", &self.argument_doubles)
            .replace("ARGUMENTS", &self.arguments.join(", "))
            .replace("ON_CHANGE", &self.on_change)
            .replace("REPLY_DOUBLES", &"d".repeat(self.places.len()))
            .replace("PLACES", &self.places.join(", "))
            .replace("READ", &read)
            .replace("LIMITS", &self.limits)
            .replace("WRITES", &self.writes)
    }
}

/// Replaces the calls of `functions` by their code.
fn inlined(code: &str, functions: &str) -> String {
    code.lines()
        .map(|line| inlined_line(line, functions))
        .collect()
}

fn inlined_line(line: &str, functions: &str) -> String {
    let call = || {
        let (targets, call) = line.trim().split_once(" = ")?;
        let (name, args) = call.strip_suffix(')')?.split_once('(')?;
        let (_, function) = functions.split_once(&format!("local function {name}("))?;
        let (params, function) = function.split_once(")\n")?;
        let (body, _) = function.split_once("\nend\n")?;
        let (body, results) = body.rsplit_once("    return ").unwrap_or((body, ""));
        let declared = targets.strip_prefix("local ");
        let declaration = declared.map_or(String::new(), |targets| format!("local {targets}\n"));
        let targets = declared.unwrap_or(targets);
        Some(format!(
            "{declaration}do\nlocal {params} = {args}\n{body}{targets} = {results}\nend\n"
        ))
    };
    call().unwrap_or_else(|| format!("{line}\n"))
}

/// The fast path of some limits, each with the number of its parameters; lua/fast/prelude.lua describes
/// its structure.
pub(super) fn fast_path(paths: &[(FastPath, usize)]) -> String {
    let count = paths.len();
    let sections = paths
        .iter()
        .map(|(fast, _)| Section::of(fast.source, "Reply"));
    let state_words: usize = sections.map(Section::len).sum();
    let mut body = include_str!("lua/fast/prelude.lua").to_owned();
    let counts = format!(
        "local state_words, part_count, args_start = {state_words}, {count}, {}\n",
        1 + count
    );
    body.push_str(&counts);
    let (mut single, mut batch) = <(Frame, Frame)>::default();
    // The length of the state precedes the parameters.
    let mut param = 1;
    for (index, (fast, param_count)) in paths.iter().enumerate() {
        let functions = [fast.shared, TTL_LUA].concat();
        let numbered = |text: &str| {
            let number = (index + 1).to_string();
            let text = text
                .replace("NUMBER", &number)
                .replace("_N", &format!("_{number}"));
            inlined(&text, &functions)
        };
        let section = |name| Section::of(fast.source, name);
        let (once, on_change, state) = (
            section("Parameters"),
            section("Arguments"),
            section("State"),
        );
        // Lua counts bytes from 1.
        let params = 1 + 8 * (param + fast.first_param);
        let framed = include_str!("lua/fast/once.lua")
            .replace("STATE_LEN", &state.len().to_string())
            .replace("PARAMETER_DOUBLES", &once.doubles())
            .replace("PARAMETERS", &once.numbered_names())
            .replace("PARAMS", &params.to_string())
            .replace("ARGUMENTS", &on_change.numbered_names());
        body.push_str(&numbered(&framed));
        body.push_str(&numbered(once.code));
        let limit = include_str!("lua/fast/limit.lua")
            .replace("STATE_DOUBLES", &state.doubles())
            .replace("STATE", state.list)
            .replace("DECISION", state.code)
            .replace("REPLY", section("Reply").list)
            .replace("SAME_EXPIRY", section("Same expiry").list)
            .replace("UNUSED_AT", section("Unused at").list)
            .replace("NEXT", section("Next").list);
        let add_to = |frame: &mut Frame, variant: &Variant| {
            let first_place = 1 + frame.places.len();
            let places = first_place..first_place + section("Reply").len();
            let places: Vec<_> = places
                .map(|place| variant.place.replace("PLACE", &place.to_string()))
                .collect();
            let limit = limit
                .replace("PLACES", &places.join(", "))
                .replace("VALUE", variant.value)
                .replace("IF_MISSING", variant.if_missing);
            let numbered = |text: &str| numbered(&text.replace("KEY_NAME", variant.key));
            frame.arguments.push(
                on_change
                    .numbered_names()
                    .replace("_N", &format!("_{}", index + 1)),
            );
            frame.argument_doubles.push_str(&on_change.doubles());
            frame.on_change.push_str(&numbered(on_change.code));
            frame.places.extend(places);
            frame
                .missing
                .push_str(&numbered(include_str!("lua/fast/missing.lua")));
            frame.limits.push_str(&numbered(&limit));
            frame.writes.push_str(&numbered(variant.write));
        };
        add_to(&mut single, &SINGLE);
        add_to(&mut batch, &BATCH);
        param += param_count;
    }
    body.push_str("if #KEYS == part_count then\n");
    body.push_str(&single.fill(include_str!("lua/fast/single.lua")));
    body.push_str("else\n");
    body.push_str(&batch.fill(include_str!("lua/fast/batch.lua")));
    body.push_str("end\n");
    body
}

/// How a limit is decided in a single call or in a batch.
struct Variant {
    key: &'static str,
    value: &'static str,
    if_missing: &'static str,
    /// Where a number of the reply is.
    place: &'static str,
    write: &'static str,
}

const SINGLE: Variant = Variant {
    key: "KEYS[NUMBER]",
    value: "try_call('GET', key)",
    if_missing: "",
    place: "state_PLACE",
    write: include_str!("lua/fast/write.lua"),
};

const BATCH: Variant = Variant {
    key: "KEYS[key_offset + NUMBER]",
    value: "written and written[key] or values[key_offset + NUMBER]",
    if_missing: "elseif is_unsure then is_fast = call('EXISTS', key) == 0",
    place: "reply[reply_offset + PLACE]",
    write: concat!(
        include_str!("lua/fast/write.lua"),
        include_str!("lua/fast/written.lua")
    ),
};

pub(super) const TTL_LUA: &str = include_str!("lua/shared/ttl.lua");
