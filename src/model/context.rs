//! How much of a conversation a model is shown.
//!
//! A model reads a limited number of tokens. Near the limit the older part of a conversation is
//! replaced by a summary of it and the newest part, the tail, is kept word for word; long outputs
//! of tools can be left out earlier. These are the sums behind that. C1 to C9 name the rules of
//! OpenCode they follow. Nothing here reads or changes a message.

/// How many characters make a token, by and large.
const CHARS_PER_TOKEN: u64 = 4;

/// The most tokens kept free in a model's input if nobody says how many.
pub const RESERVED_TOKENS_MAX: u64 = 20_000;

/// How long an answer may get if nobody says so.
pub const OUTPUT_TOKENS_ASSUMED: u64 = 32_000;

/// The least a tail may hold if nobody says how much.
pub const TAIL_TOKENS_MIN: u64 = 2_000;

/// The most a tail may hold if nobody says how much.
pub const TAIL_TOKENS_MAX: u64 = 15_000;

/// A tail between the two holds this part of what is usable.
const TAIL_PART: u64 = 4;

/// In how many of the newest turns all outputs of tools stay.
pub const PRUNE_TURNS_KEPT: u32 = 2;

/// How much of the newest output in older turns stays as well.
pub const PRUNE_TOKENS_PROTECTED: u64 = 40_000;

/// Freeing no more than this is not worth changing what the model has read before.
pub const PRUNE_TOKENS_MIN: u64 = 20_000;

/// What a model can read and write, and what its user wishes, in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// What it can read and write together; 0 for unknown.
    pub context: u64,
    /// What it can read, if that is limited by itself; 0 for unknown.
    pub input: u64,
    /// The longest answer it will be asked for; 0 for unknown.
    pub output: u64,
    /// What stays free of `input`.
    pub reserved: Option<u64>,
    /// What the tail may hold.
    pub preserve_recent: Option<u64>,
    /// How many turns the tail may hold; none for any number.
    pub tail_turns: Option<u32>,
    /// Whether a conversation that gets too long is summarised without being asked.
    pub auto: bool,
}

/// How many tokens a text has, roughly, by its characters. Half a token counts as one (C9).
pub fn estimate(chars: u64) -> u64 {
    chars / CHARS_PER_TOKEN + u64::from(chars % CHARS_PER_TOKEN >= CHARS_PER_TOKEN / 2)
}

/// How many tokens of conversation a model takes before it has no room to answer (C1).
pub fn usable(limits: &Limits) -> u64 {
    let window = if limits.input > 0 { limits.input } else { limits.context };
    let output = match limits.output {
        // In a small window the usual guess would leave nothing to read.
        0 => OUTPUT_TOKENS_ASSUMED.min(window / 2),
        known => known,
    };
    let free = match limits.input {
        0 => output,
        _ => limits.reserved.unwrap_or(RESERVED_TOKENS_MAX.min(output)),
    };
    window.saturating_sub(free)
}

/// Whether it is time for a summary, seeing how many tokens the last answer took in all (C2).
/// Never for a model of which no limit is known.
pub fn overflows(limits: &Limits, used: u64) -> bool {
    let is_known = limits.context > 0 || limits.input > 0;
    limits.auto && is_known && used >= usable(limits)
}

/// How many tokens of the newest messages stay beside a summary (C4).
pub fn tail_budget(limits: &Limits) -> u64 {
    let usual = || (usable(limits) / TAIL_PART).clamp(TAIL_TOKENS_MIN, TAIL_TOKENS_MAX);
    limits.preserve_recent.unwrap_or_else(usual)
}

/// A message and what it costs to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Weighed {
    /// Where in the conversation it is.
    pub cursor: u64,
    /// Whether a turn begins with it.
    pub is_user: bool,
    /// What it costs.
    pub tokens: u64,
}

/// The cursor of the first message that stays beside a summary, of messages in the order they
/// were written; none if none stays (C4).
///
/// Whole turns stay while there is room, and of the first that has none, the newest messages. If
/// all messages fit, that is the very first one, and there is nothing to summarise.
pub fn tail_start(limits: &Limits, messages: &[Weighed]) -> Option<u64> {
    let mut left = tail_budget(limits);
    let mut turns = 0;
    let mut start = None;
    for message in messages.iter().rev() {
        if limits.tail_turns.is_some_and(|most| turns >= most) || message.tokens > left {
            break;
        }
        left -= message.tokens;
        turns += u32::from(message.is_user);
        start = Some(message.cursor);
    }
    start
}

/// The output of a finished call of a tool, as far as it matters whether it may be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Output {
    /// In which turn it is, counted from the newest, which is 0.
    pub turn_from_end: u32,
    /// What it costs to show.
    pub tokens: u64,
    /// Its tool is one whose output is an instruction (`skill`), so that it always stays.
    pub tool_is_kept_always: bool,
    /// It is left out already.
    pub compacted: bool,
    /// On the way back from the newest a summary comes before it, and stands for it.
    pub after_summary: bool,
}

/// Which outputs, by their place in a list that begins with the newest, may be left out, and how
/// many tokens that frees (C8). None if it is not worth it.
///
/// An output that lies only in part within the protected tokens may be left out: otherwise a
/// single long one could stay for ever.
pub fn prunable(outputs: &[Output]) -> (Vec<usize>, u64) {
    let (mut places, mut freed, mut seen) = (Vec::new(), 0u64, 0u64);
    for (place, output) in outputs.iter().enumerate() {
        if output.turn_from_end < PRUNE_TURNS_KEPT {
            continue;
        }
        // Whatever is older was dealt with the last time.
        if output.after_summary || (output.compacted && !output.tool_is_kept_always) {
            break;
        }
        if output.tool_is_kept_always {
            continue;
        }
        seen = seen.saturating_add(output.tokens);
        if seen > PRUNE_TOKENS_PROTECTED {
            freed = freed.saturating_add(output.tokens);
            places.push(place);
        }
    }
    if freed > PRUNE_TOKENS_MIN { (places, freed) } else { (Vec::new(), 0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UNKNOWN: Limits = Limits {
        context: 0,
        input: 0,
        output: 0,
        reserved: None,
        preserve_recent: None,
        tail_turns: None,
        auto: true,
    };

    #[test]
    fn four_characters_are_a_token() {
        let table = [(0, 0), (1, 0), (2, 1), (4, 1), (5, 1), (6, 2), (u64::MAX, 1 << 62)];
        for (chars, want) in table {
            assert_eq!(estimate(chars), want, "{chars}");
        }
    }

    #[test]
    fn an_answer_needs_room() {
        // Context, input, output, reserved, and what is usable then.
        let table = [
            (200_000, 0, 32_000, None, 168_000),
            (400_000, 272_000, 128_000, None, 252_000),
            (400_000, 272_000, 8_000, None, 264_000),
            (400_000, 272_000, 128_000, Some(50_000), 222_000),
            (400_000, 272_000, 128_000, Some(300_000), 0),
            (8_000, 0, 16_000, None, 0),
            (200_000, 0, 0, None, 168_000),
            (8_000, 0, 0, None, 4_000),
            (0, 100_000, 0, None, 80_000),
            (0, 0, 32_000, None, 0),
        ];
        for (context, input, output, reserved, want) in table {
            let limits = Limits { context, input, output, reserved, ..UNKNOWN };
            assert_eq!(usable(&limits), want, "{limits:?}");
            assert_eq!(overflows(&limits, want), context + input > 0, "{limits:?}");
            assert!(want == 0 || !overflows(&limits, want - 1), "{limits:?}");
            assert!(!overflows(&Limits { auto: false, ..limits }, u64::MAX), "{limits:?}");
        }
    }

    #[test]
    fn a_tail_has_a_budget() {
        let table = [
            (0, None, TAIL_TOKENS_MIN),
            (20_000, None, 4_750),
            (1_000_000, None, TAIL_TOKENS_MAX),
            (1_000_000, Some(7), 7),
            (0, Some(99_999), 99_999),
        ];
        for (context, preserve_recent, want) in table {
            let limits = Limits { context, output: 1_000, preserve_recent, ..UNKNOWN };
            assert_eq!(tail_budget(&limits), want, "{limits:?}");
        }
    }

    /// `u3 a4` is a message of a user that costs 3 and an answer that costs 4. Cursors begin at 1.
    fn messages(text: &str) -> Vec<Weighed> {
        let weighed = |(cursor, word): (u64, &str)| Weighed {
            cursor,
            is_user: word.starts_with('u'),
            tokens: word[1..].parse().unwrap(),
        };
        (1..).zip(text.split_whitespace()).map(weighed).collect()
    }

    #[test]
    fn the_newest_turns_stay() {
        let table = [
            ("", 10, None, None),
            ("u3 a3 u3 a3", 12, None, Some(1)),
            ("u3 a3 u3 a3", 11, None, Some(2)), // the older turn is split
            ("u3 a3 u3 a3", 8, None, Some(3)),
            ("u3 a3 u3 a3", 5, None, Some(4)), // the newest turn is split
            ("u3 a3 u3 a3", 2, None, None),
            ("u3 a3 u3 a3", 99, Some(1), Some(3)),
            ("u3 a3 u3 a3", 99, Some(2), Some(1)),
            ("u3 a3 u3 a3", 5, Some(1), Some(4)),
            ("u3 a3 u3 a3", 99, Some(0), None),
            ("u1 a1 u9 a1 a1", 4, None, Some(4)), // what is older than a gap does not stay
            ("u3 u3 u3", 99, Some(2), Some(2)),
            ("a3 u3 a3", 99, None, Some(1)),
            ("a3 u3 a3", 99, Some(1), Some(2)),
        ];
        for (text, budget, tail_turns, want) in table {
            let limits = Limits { preserve_recent: Some(budget), tail_turns, ..UNKNOWN };
            assert_eq!(tail_start(&limits, &messages(text)), want, "{text} {budget}");
        }
    }

    /// `2:30` is an output of 30 thousand tokens in turn 2; `k` is kept always, `c` is compacted
    /// and `s` lies behind a summary.
    fn outputs(text: &str) -> Vec<Output> {
        let output = |word: &str| {
            let (turn, rest) = word.split_once(':').unwrap();
            let thousands: u64 = rest.trim_end_matches(char::is_alphabetic).parse().unwrap();
            Output {
                turn_from_end: turn.parse().unwrap(),
                tokens: thousands * 1_000,
                tool_is_kept_always: rest.contains('k'),
                compacted: rest.contains('c'),
                after_summary: rest.contains('s'),
            }
        };
        text.split_whitespace().map(output).collect()
    }

    #[test]
    fn old_outputs_go() {
        let table: [(&str, &[usize], u64); 13] = [
            ("", &[], 0),
            ("0:90 1:90", &[], 0),
            ("0:90 1:90 2:40 2:20", &[], 0),
            ("2:40 2:21", &[1], 21_000),
            ("2:50", &[0], 50_000),
            ("0:90 2:30 3:30 4:30", &[2, 3], 60_000),
            ("2:40 2:15 3:15", &[1, 2], 30_000),
            ("2:40 3:90k 4:30", &[2], 30_000),
            ("2:30k 3:30 4:30", &[2], 30_000),
            ("2:40 3:30 4:30c 5:30", &[1], 30_000),
            ("2:40 3:30 4:9kc 5:30", &[1, 3], 60_000),
            ("2:40 3:30 4:30s 5:30s", &[1], 30_000),
            ("0:30c 1:30c 2:40 3:30", &[3], 30_000),
        ];
        for (text, places, freed) in table {
            assert_eq!(prunable(&outputs(text)), (places.to_vec(), freed), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_tail_keeps_to_its_budget_and_uses_it(
            list in prop::collection::vec((any::<bool>(), 0u64..4_000), 0..30),
            context in 0u64..100_000, preserve_recent in prop::option::of(0u64..20_000),
            tail_turns in prop::option::of(0u32..4),
        ) {
            let limits = Limits { context, preserve_recent, tail_turns, ..UNKNOWN };
            let list: Vec<Weighed> = (0..).zip(list)
                .map(|(cursor, (is_user, tokens))| Weighed { cursor, is_user, tokens })
                .collect();
            let start = tail_start(&limits, &list).map_or(list.len(), |cursor| cursor as usize);
            let cost = |list: &[Weighed]| list.iter().map(|message| message.tokens).sum::<u64>();
            let turns = list[start..].iter().filter(|message| message.is_user).count();
            prop_assert!(cost(&list[start..]) <= tail_budget(&limits));
            prop_assert!(tail_turns.is_none_or(|most| turns <= most as usize));
            let is_full = start > 0 && cost(&list[start - 1..]) > tail_budget(&limits);
            let is_long = tail_turns.is_some_and(|most| turns == most as usize);
            prop_assert!(start == 0 || is_full || is_long);
        }

        #[test]
        fn pruning_leaves_what_is_protected(
            list in prop::collection::vec((0u32..2, 0u64..30_000, 0u8..20), 0..30),
        ) {
            let mut turn_from_end = 0;
            let list: Vec<Output> = list.into_iter().map(|(step, tokens, kind)| {
                turn_from_end += step;
                Output {
                    turn_from_end,
                    tokens,
                    tool_is_kept_always: kind == 0,
                    compacted: kind == 1,
                    after_summary: kind == 2,
                }
            }).collect();
            let (places, freed) = prunable(&list);
            let tokens = |places: &[usize]| places.iter().map(|at| list[*at].tokens).sum::<u64>();
            prop_assert_eq!(tokens(&places), freed);
            prop_assert!(places.is_empty() || freed > PRUNE_TOKENS_MIN);
            for at in places {
                let output = list[at];
                prop_assert!(output.turn_from_end >= PRUNE_TURNS_KEPT);
                prop_assert!(!output.tool_is_kept_always && !output.compacted);
                let newer: Vec<usize> = (0..=at)
                    .filter(|at| list[*at].turn_from_end >= PRUNE_TURNS_KEPT)
                    .filter(|at| !list[*at].tool_is_kept_always)
                    .collect();
                prop_assert!(tokens(&newer) > PRUNE_TOKENS_PROTECTED);
                let is_stop = |at: &usize| list[*at].compacted || list[*at].after_summary;
                prop_assert!(!newer.iter().any(is_stop));
            }
        }
    }
}
