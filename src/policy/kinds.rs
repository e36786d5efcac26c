//! The algorithms that a text can name, and their options.

/// An algorithm that a text can name.
#[derive(Debug)]
pub(super) struct Kind {
    pub(super) name: &'static str,
    pub(super) takes: Amount,
    /// In the order in which they are printed.
    pub(super) options: &'static [OptionName],
}

/// What follows the name of an algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Amount {
    /// `10/s`.
    Rate,
    /// `20`.
    Count,
}

/// An option of an algorithm.
#[derive(Debug)]
pub(super) struct OptionName {
    pub(super) name: &'static str,
    pub(super) takes: Takes,
    /// The option without which this one has no effect.
    pub(super) needs: Option<&'static str>,
    /// The option beside which this one has no effect.
    pub(super) not_with: Option<&'static str>,
}

/// The values of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    Count,
    Time,
    Flag,
    /// The first one is the default.
    OneOf(&'static [&'static str]),
}

const fn option(name: &'static str, takes: Takes) -> OptionName {
    OptionName {
        name,
        takes,
        needs: None,
        not_with: None,
    }
}

const fn with_queue(name: &'static str, takes: Takes) -> OptionName {
    OptionName {
        needs: Some("queue"),
        ..option(name, takes)
    }
}

const BURST: OptionName = option("burst", Takes::Count);
const QUEUE: OptionName = option("queue", Takes::Count);
const MAX_WAIT: OptionName = with_queue("max_wait", Takes::Time);
const OFFSET: OptionName = option("offset", Takes::Time);

/// All algorithms, and the limit on requests in flight.
pub(super) static KINDS: [Kind; 10] = [
    Kind {
        name: "token_bucket",
        takes: Amount::Rate,
        options: &[BURST, option("initial", Takes::Count), QUEUE, MAX_WAIT],
    },
    Kind {
        name: "leaky_bucket",
        takes: Amount::Rate,
        options: &[
            OptionName {
                not_with: Some("queue"),
                ..BURST
            },
            QUEUE,
            MAX_WAIT,
            with_queue("max_cost", Takes::Count),
            with_queue("charge", Takes::OneOf(&["after", "before"])),
        ],
    },
    Kind {
        name: "fixed_window",
        takes: Amount::Rate,
        options: &[
            option("anchored", Takes::Flag),
            OptionName {
                not_with: Some("anchored"),
                ..OFFSET
            },
        ],
    },
    Kind {
        name: "sliding_window",
        takes: Amount::Rate,
        options: &[OFFSET],
    },
    Kind {
        name: "sliding_grid",
        takes: Amount::Rate,
        options: &[
            option("cells", Takes::Count),
            option("strict", Takes::Flag),
            OFFSET,
        ],
    },
    Kind {
        name: "sliding_log",
        takes: Amount::Rate,
        options: &[],
    },
    Kind {
        name: "warm_up",
        takes: Amount::Rate,
        options: &[
            option("warm_up", Takes::Time),
            option("cold_factor", Takes::Count),
            QUEUE,
            MAX_WAIT,
            option("max_cost", Takes::Count),
        ],
    },
    Kind {
        name: "lockout",
        takes: Amount::Rate,
        options: &[
            option("block", Takes::Time),
            option("max_block", Takes::Time),
            option("forget", Takes::Time),
            option("parole", Takes::Count),
            option("on_success", Takes::OneOf(&["keep", "clear"])),
        ],
    },
    Kind {
        name: "gcra",
        takes: Amount::Rate,
        options: &[BURST],
    },
    Kind {
        name: "concurrency",
        takes: Amount::Count,
        options: &[QUEUE, MAX_WAIT],
    },
];

impl Kind {
    pub(super) fn named(name: &str) -> Option<&'static Self> {
        KINDS.iter().find(|kind| kind.name == name)
    }

    pub(super) fn names() -> impl Iterator<Item = &'static str> {
        KINDS.iter().map(|kind| kind.name)
    }

    pub(super) fn option_names(&self) -> impl Iterator<Item = &'static str> {
        self.options.iter().map(|option| option.name)
    }

    /// Whether a rate or a number follows the name.
    pub(super) fn amount_form(&self) -> &'static str {
        match self.takes {
            Amount::Rate => "LIMIT/PERIOD, such as 10/s or 100/min",
            Amount::Count => "a number of requests, such as 20",
        }
    }
}
