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
        const SECTIONS: [&str; 6] = [
            "-- Parameters: ",
            "-- Arguments: ",
            "-- State: ",
            "-- Reply: ",
            "-- Next: ",
            "-- Unused at: ",
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

/// The fast path of some limits, each with the number of its parameters; lua/fast/prelude.lua describes
/// its structure.
pub(super) fn fast_path(paths: &[(FastPath, usize)]) -> String {
    let count = paths.len();
    let mut body = include_str!("lua/fast/prelude.lua").to_owned();
    let counts = format!(
        "local part_count, call_count, args_start = {count}, #KEYS / {count}, {}\n\
         local args_differ = #ARGV - args_start >= call_count\n",
        1 + count
    );
    body.push_str(&counts);
    let (mut arguments, mut limits, mut writes) = (String::new(), String::new(), String::new());
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
        let read = format!(
            "{}, arg_offset = unpack('<{}', args, arg_offset)\n",
            on_change.numbered_names(),
            on_change.doubles()
        );
        arguments.push_str(&numbered(&read));
        arguments.push_str(&numbered(on_change.code));
        let reply = section("Reply");
        let places = (0..reply.len()).map(|place| match place {
            0 => "reply[place]".to_owned(),
            place => format!("reply[place + {place}]"),
        });
        let limit = include_str!("lua/fast/limit.lua")
            .replace("STATE_DOUBLES", &state.doubles())
            .replace("STATE", state.list)
            .replace("DECISION", state.code)
            .replace("PLACES", &places.collect::<Vec<_>>().join(", "))
            .replace("REPLY_LEN", &reply.len().to_string())
            .replace("REPLY", reply.list)
            .replace("UNUSED_AT", section("Unused at").list)
            .replace("NEXT", section("Next").list);
        limits.push_str(&numbered(&limit));
        writes.push_str(&numbered(include_str!("lua/fast/write.lua")));
        param += param_count;
    }
    let decided = include_str!("lua/fast/loop.lua")
        .replace("ARGUMENTS", &arguments)
        .replace("LIMITS", &limits)
        .replace("WRITES", &writes);
    body.push_str(&decided);
    body.push_str(include_str!("lua/fast/epilogue.lua"));
    body
}
