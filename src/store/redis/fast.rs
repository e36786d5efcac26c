//! The fast path of a script, generated from the files of its limits.

/// Lua code that decides common calls.
#[derive(Clone, Copy, Debug)]
pub(super) struct FastPath {
    /// The functions it has in common with the full path.
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
            "-- Same end: ",
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

/// What the limits add to lua/fast/loop.lua.
#[derive(Default)]
struct LoopCode {
    arguments: Vec<String>,
    argument_doubles: String,
    on_change: String,
    missing: String,
    limits: String,
    writes: String,
}

impl LoopCode {
    fn framed(&self) -> String {
        let read = include_str!("lua/fast/read.lua").replace("MISSING", &self.missing);
        include_str!("lua/fast/loop.lua")
            .replace("ARGUMENT_DOUBLES", &self.argument_doubles)
            .replace("ARGUMENTS", &self.arguments.join(", "))
            .replace("ON_CHANGE", &self.on_change)
            .replace("READ", &read)
            .replace("LIMITS", &self.limits)
            .replace("WRITES", &self.writes)
    }
}

/// The fast path of some limits, each with the number of its parameters; lua/fast/prelude.lua describes
/// its structure.
pub(super) fn fast_path(paths: &[(FastPath, usize)]) -> String {
    let count = paths.len();
    let state_words: usize = paths
        .iter()
        .map(|(fast, _)| Section::of(fast.source, "Reply").len())
        .sum();
    let mut body = include_str!("lua/fast/prelude.lua").to_owned();
    let counts = format!(
        "local state_words, part_count, call_count = {state_words}, {count}, #KEYS / {count}\n\
         local args_start = {}\n\
         local args_differ = #ARGV - args_start >= call_count\n",
        1 + count
    );
    body.push_str(&counts);
    let mut code = LoopCode::default();
    // The length of the state precedes the parameters.
    let mut param = 1;
    for (index, (fast, param_count)) in paths.iter().enumerate() {
        // Lua counts bytes from 1.
        let params = 1 + 8 * (param + fast.first_param);
        let numbered = |text: &str| {
            let number = (index + 1).to_string();
            text.replace("NUMBER", &number)
                .replace("_N", &format!("_{number}"))
        };
        let section = |name| Section::of(fast.source, name);
        let (once, on_change, state) = (
            section("Parameters"),
            section("Arguments"),
            section("State"),
        );
        let framed = include_str!("lua/fast/once.lua")
            .replace("STATE_LEN", &state.len().to_string())
            .replace("PARAMETER_DOUBLES", &once.doubles())
            .replace("PARAMETERS", &once.numbered_names())
            .replace("PARAMS", &params.to_string())
            .replace("ARGUMENTS", &on_change.numbered_names());
        body.push_str(&numbered(&framed));
        body.push_str(&numbered(once.code));
        code.arguments.push(numbered(&on_change.numbered_names()));
        code.argument_doubles.push_str(&on_change.doubles());
        code.on_change.push_str(&numbered(on_change.code));
        code.missing
            .push_str(&numbered(include_str!("lua/fast/missing.lua")));
        let reply = section("Reply");
        let places = (0..reply.len()).map(|place| match place {
            0 => "reply[place]".to_owned(),
            place => format!("reply[place + {place}]"),
        });
        let same_end = match section("Same end").list {
            "" => "false",
            condition => condition,
        };
        let limit = include_str!("lua/fast/limit.lua")
            .replace("STATE_DOUBLES", &state.doubles())
            .replace("STATE", state.list)
            .replace("DECISION", state.code)
            .replace("PLACES", &places.collect::<Vec<_>>().join(", "))
            .replace("REPLY_LEN", &reply.len().to_string())
            .replace("REPLY", reply.list)
            .replace("SAME_END", same_end)
            .replace("UNUSED_AT", section("Unused at").list)
            .replace("NEXT", section("Next").list);
        code.limits.push_str(&numbered(&limit));
        code.writes
            .push_str(&numbered(include_str!("lua/fast/write.lua")));
        param += param_count;
    }
    body.push_str(&code.framed());
    body.push_str(include_str!("lua/fast/epilogue.lua"));
    body
}
