//! What steps cost, summed up exactly.

use serde::{Deserialize, Serialize};

/// What one step cost, or several together.
///
/// Money is counted in billionths of a dollar: adding and taking away fractions would drift, and a sum must be
/// the same whichever way it was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// In billionths of a dollar.
    pub cost_nano: i64,
    /// Tokens read.
    pub input: u64,
    /// Tokens written.
    pub output: u64,
    /// Tokens thought.
    pub reasoning: u64,
    /// Tokens read from a cache.
    pub cache_read: u64,
    /// Tokens written to one.
    pub cache_write: u64,
}

/// Largest number of tokens, and of billionths, that is counted: far beyond anything real, and far from where
/// sums of them would overflow.
const COUNTED_MAX: u64 = 1 << 50;

impl Usage {
    /// Dollars as they are counted. What is no amount counts as nothing.
    pub fn nano(dollars: f64) -> i64 {
        let nano = (dollars * 1e9).round();
        if !nano.is_finite() {
            return 0;
        }
        // In range by the clamp, so the cast cannot change it.
        nano.clamp(-(COUNTED_MAX as f64), COUNTED_MAX as f64) as i64
    }

    /// In dollars.
    pub fn dollars(&self) -> f64 {
        self.cost_nano as f64 / 1e9
    }

    /// Both together.
    pub fn plus(self, other: Usage) -> Usage {
        self.joined(other, i64::saturating_add, u64::saturating_add)
    }

    /// Without what the other one counted.
    pub fn minus(self, other: Usage) -> Usage {
        self.joined(other, i64::saturating_sub, u64::saturating_sub)
    }

    fn joined(
        self,
        other: Usage,
        money: fn(i64, i64) -> i64,
        tokens: fn(u64, u64) -> u64,
    ) -> Usage {
        let tokens = |one: u64, other: u64| tokens(one, other.min(COUNTED_MAX));
        Usage {
            cost_nano: money(self.cost_nano, other.cost_nano),
            input: tokens(self.input, other.input),
            output: tokens(self.output, other.output),
            reasoning: tokens(self.reasoning, other.reasoning),
            cache_read: tokens(self.cache_read, other.cache_read),
            cache_write: tokens(self.cache_write, other.cache_write),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_counted_exactly_and_nonsense_as_nothing() {
        for (dollars, nano) in [
            (0.1, 100_000_000),
            (0.000_000_001, 1),
            (-0.5, -500_000_000),
            (f64::NAN, 0),
            (f64::INFINITY, 0),
            (1e300, 0),
            (1e20, COUNTED_MAX as i64),
        ] {
            assert_eq!(Usage::nano(dollars), nano, "{dollars}");
        }
        let third = Usage { cost_nano: Usage::nano(0.1), input: 3, ..Usage::default() };
        let all = third.plus(third).plus(third);
        assert_eq!(all.dollars(), 0.3);
        assert_eq!(all.minus(third).minus(third).minus(third), Usage::default());
    }
}
