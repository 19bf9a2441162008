//! The order of the documents that a search found, by the documents that it may find: BM25 over those of one tenant, of one
//! caller or of one session. FTS5's own rank counts words over the documents of all tenants.
//!
//! **Invariant:** a score follows from the documents that the caller may find, and from nothing else.

use std::collections::HashMap;

/// Documents of one term that are read, the newest. A term that more documents have weighs next to nothing.
pub(super) const MATCHES_MAX: u32 = 50_000;
/// The best documents by their terms alone. Of these, the length counts too.
const LENGTHS_MAX: usize = 1_000;

/// The weights of further repetitions of a term, and of the length of a document. FTS5 has the same.
const SATURATION: f64 = 1.2;
const LENGTH_SHARE: f64 = 0.75;
/// The number of times that a document is taken to have a term which it has more than once. The index does not say more.
const REPEATED: f64 = 3.0;
/// The weight of a term that half of the documents have, or more. FTS5 has the same.
const COMMON: f64 = 1e-6;

/// The documents that a search found, and the weights of its terms.
#[derive(Default)]
pub(super) struct Ranking {
    weights: Vec<f64>,
    found: HashMap<i64, FoundTerms>,
}

/// The terms of a document: a bit for each.
#[derive(Clone, Copy, Default)]
struct FoundTerms {
    said: u32,
    repeated: u32,
}

/// A document and its score.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Ranked {
    pub(super) search_no: i64,
    pub(super) score: f64,
}

impl Ranking {
    /// Adds the documents of the next term, and those among them that have it more than once. A query has at most 32 terms.
    /// `documents` could be found.
    pub(super) fn add(&mut self, documents: u32, said: &[i64], repeated: &[i64]) {
        let bit = 1_u32 << self.weights.len();
        self.weights.push(weight(f64::from(documents.min(MATCHES_MAX)), said.len() as f64));
        for search_no in said {
            self.found.entry(*search_no).or_default().said |= bit;
        }
        for search_no in repeated {
            if let Some(terms) = self.found.get_mut(search_no) {
                terms.repeated |= bit;
            }
        }
    }

    /// The best documents, if all were of the same length, the best first.
    pub(super) fn best(&self) -> Vec<Ranked> {
        let score = |(search_no, terms): (&i64, &FoundTerms)| Ranked {
            search_no: *search_no,
            score: self.score(*terms, 1.0),
        };
        let mut all: Vec<Ranked> = self.found.iter().map(score).collect();
        if all.len() > LENGTHS_MAX {
            all.select_nth_unstable_by(LENGTHS_MAX, order);
            all.truncate(LENGTHS_MAX);
        }
        all.sort_unstable_by(order);
        all
    }

    /// These documents in their order, by their terms and by their lengths in words. One without a length is as long as the
    /// mean of the others.
    pub(super) fn ranked(&self, best: &[i64], lengths: &HashMap<i64, u32>) -> Vec<Ranked> {
        let known = best.iter().filter_map(|search_no: &i64| lengths.get(search_no));
        let known: Vec<f64> = known.map(|words| f64::from(*words)).collect();
        let mean = known.iter().sum::<f64>() / (known.len() as f64).max(1.0);
        let relative =
            |search_no: &i64| lengths.get(search_no).map_or(1.0, |words| f64::from(*words) / mean.max(1.0));
        let terms = |search_no: &i64| self.found.get(search_no).copied().unwrap_or_default();
        let score = |search_no: &i64| Ranked {
            search_no: *search_no,
            score: self.score(terms(search_no), relative(search_no)),
        };
        let mut all: Vec<Ranked> = best.iter().map(score).collect();
        all.sort_unstable_by(order);
        all
    }

    /// The score of a document with these terms, whose length is this share of the mean.
    fn score(&self, terms: FoundTerms, length: f64) -> f64 {
        let slowed = SATURATION * (1.0 - LENGTH_SHARE + LENGTH_SHARE * length);
        let term = |(at, weight): (usize, &f64)| {
            let has = |bits: u32| bits & (1 << at) != 0;
            let times = if has(terms.repeated) { REPEATED } else { f64::from(u8::from(has(terms.said))) };
            weight * times * (SATURATION + 1.0) / (times + slowed)
        };
        self.weights.iter().enumerate().map(term).sum()
    }
}

/// The weight of a term that this many of the documents have: the rarer, the more.
fn weight(documents: f64, having: f64) -> f64 {
    let rare = ((documents - having + 0.5).max(0.5) / (having + 0.5)).ln();
    if rare > 0.0 { rare } else { COMMON }
}

/// The better one first; of equal ones the newer one, which has the higher number.
fn order(a: &Ranked, b: &Ranked) -> std::cmp::Ordering {
    b.score.total_cmp(&a.score).then_with(|| b.search_no.cmp(&a.search_no))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of the documents in their order.
    fn ranked(ranking: &Ranking, lengths: &[(i64, u32)]) -> Vec<i64> {
        let lengths = lengths.iter().copied().collect();
        let best: Vec<i64> = ranking.best().iter().map(|one| one.search_no).collect();
        ranking.ranked(&best, &lengths).into_iter().map(|one| one.search_no).collect()
    }

    #[test]
    fn rarer_terms_and_more_of_them_are_better() {
        let mut ranking = Ranking::default();
        ranking.add(100, &[9, 8, 7, 6, 5], &[]);
        ranking.add(100, &[7, 4], &[]);
        assert_eq!(ranked(&ranking, &[]), [7, 4, 9, 8, 6, 5]);
    }

    #[test]
    fn a_repeated_term_and_a_short_text_are_better() {
        let mut ranking = Ranking::default();
        ranking.add(100, &[1, 2, 3], &[1]);
        assert_eq!(ranked(&ranking, &[]), [1, 3, 2], "of equal ones the newest first");
        assert_eq!(ranked(&ranking, &[(1, 30), (2, 2), (3, 30)]), [2, 1, 3]);
        assert_eq!(ranked(&ranking, &[(1, 9), (3, 30)]), [1, 2, 3], "without a length as the mean");
    }

    #[test]
    fn a_common_term_decides_between_equals_alone() {
        let mut ranking = Ranking::default();
        ranking.add(10, &[1, 2], &[]);
        ranking.add(10, &[1, 3, 4, 5, 6], &[3]);
        assert_eq!(ranked(&ranking, &[]), [1, 2, 3, 6, 5, 4]);
        let scores: Vec<f64> = ranking.best().into_iter().map(|one| one.score).collect();
        assert!(scores[1] > 1.0 && scores[2] < 0.001 && scores[5] > 0.0, "{scores:?}");
    }

    #[test]
    fn a_term_that_is_not_read_to_its_end_is_common() {
        let mut ranking = Ranking::default();
        let many: Vec<i64> = (1..=i64::from(MATCHES_MAX)).collect();
        ranking.add(u32::MAX, &many, &[]);
        ranking.add(u32::MAX, &[0], &[]);
        let best = ranking.best();
        assert_eq!(best.len(), LENGTHS_MAX);
        assert_eq!((best[0].search_no, best[1].search_no), (0, i64::from(MATCHES_MAX)));
        assert!(best[1].score < best[0].score / 1e6, "{best:?}");
    }

    #[test]
    fn a_query_may_have_as_many_terms_as_there_are_bits() {
        let mut ranking = Ranking::default();
        (0..32).for_each(|term| ranking.add(100, &[term], &[term]));
        assert_eq!(ranked(&ranking, &[]).len(), 32);
    }
}
