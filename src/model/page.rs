//! Lists are returned a page at a time; a cursor says where the next one begins.

use crate::limits::{PAGE_ITEMS_DEFAULT, PAGE_ITEMS_MAX};
use crate::model::ids::Cursor;

/// Which part of a list is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    after: u64,
    limit: u32,
    newest_first: bool,
}

impl Page {
    /// As a caller asked for it: `limit` 0 leaves the number to us, and a large one is cut.
    pub fn new(after: u64, limit: u32, newest_first: bool) -> Self {
        let limit = match limit {
            0 => PAGE_ITEMS_DEFAULT,
            n => n.min(PAGE_ITEMS_MAX),
        };
        Self { after, limit, newest_first }
    }

    /// The same of a list that ends here; 0 for one that does not.
    pub fn through(self, last: Cursor) -> Self {
        let starts_beyond = self.after == 0 || self.after > last.0;
        match self.newest_first && last.0 > 0 && starts_beyond {
            true => Self { after: last.0 + 1, ..self },
            false => self,
        }
    }

    /// Whether it goes from the end to the beginning.
    pub fn newest_first(&self) -> bool {
        self.newest_first
    }

    /// The most items it may hold.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// The cursor behind which it starts.
    pub fn after(&self) -> Cursor {
        Cursor(self.after)
    }

    /// The first cursor that may be in it: the least one, or going backwards the greatest.
    pub fn bound(&self) -> i64 {
        let least = i64::try_from(self.after).unwrap_or(i64::MAX);
        match (self.newest_first, self.after) {
            (false, _) => least.saturating_add(1),
            (true, 0) => i64::MAX,
            (true, _) => least - 1,
        }
    }
}

/// The items of a page and where the next one begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paged<T> {
    /// What was found, in the order asked for.
    pub items: Vec<T>,
    /// The `after` of the next page.
    pub next: Cursor,
    /// Whether that page would hold anything now.
    pub more: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds() {
        let cases = [
            (0, false, 1),
            (7, false, 8),
            (u64::MAX, false, i64::MAX),
            (0, true, i64::MAX),
            (1, true, 0),
            (7, true, 6),
        ];
        for (after, newest_first, bound) in cases {
            assert_eq!(Page::new(after, 0, newest_first).bound(), bound, "{after} {newest_first}");
        }
        assert_eq!(Page::new(0, 0, false).limit(), PAGE_ITEMS_DEFAULT);
        assert_eq!(Page::new(0, u32::MAX, false).limit(), PAGE_ITEMS_MAX);
    }
}
