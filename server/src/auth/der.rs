//! A reader of DER, as far as certificates need it. The first fault ends the reading; nothing is allocated.

/// The tags that certificates have.
pub(super) mod tag {
    pub(in crate::auth) const BOOLEAN: u8 = 0x01;
    pub(in crate::auth) const INTEGER: u8 = 0x02;
    pub(in crate::auth) const OCTET_STRING: u8 = 0x04;
    pub(in crate::auth) const OBJECT_IDENTIFIER: u8 = 0x06;
    pub(in crate::auth) const UTF8_STRING: u8 = 0x0c;
    pub(in crate::auth) const PRINTABLE_STRING: u8 = 0x13;
    pub(in crate::auth) const IA5_STRING: u8 = 0x16;
    pub(in crate::auth) const UTC_TIME: u8 = 0x17;
    pub(in crate::auth) const GENERALIZED_TIME: u8 = 0x18;
    pub(in crate::auth) const SEQUENCE: u8 = 0x30;
    pub(in crate::auth) const VERSION: u8 = 0xa0;
    pub(in crate::auth) const EXTENSIONS: u8 = 0xa3;
    pub(in crate::auth) const EMAIL_NAME: u8 = 0x81;
    pub(in crate::auth) const DNS_NAME: u8 = 0x82;
    pub(in crate::auth) const URI_NAME: u8 = 0x86;
}

/// One element: its tag and its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Element<'d> {
    pub(super) tag: u8,
    pub(super) content: &'d [u8],
}

/// Reads elements one after the other.
#[derive(Debug, Clone, Copy)]
pub(super) struct DerReader<'d>(&'d [u8]);

impl<'d> DerReader<'d> {
    pub(super) fn new(der: &'d [u8]) -> Self {
        Self(der)
    }

    /// The next element, if it has this tag.
    pub(super) fn read(&mut self, tag: u8) -> Option<Element<'d>> {
        self.next().filter(|element| element.tag == tag)
    }

    /// Passes over the next element if it has this tag.
    pub(super) fn skip_if(&mut self, tag: u8) {
        if self.0.first() == Some(&tag) {
            let _skipped = self.next();
        }
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// A definite length of at most four bytes.
    fn length(&mut self) -> Option<usize> {
        let first = self.byte()?;
        if first < 0x80 {
            return Some(usize::from(first));
        }
        let count = first & 0x7f;
        if !(1..=4).contains(&count) {
            return None;
        }
        (0..count).try_fold(0, |length, _| Some(length << 8 | usize::from(self.byte()?)))
    }
}

impl<'d> Iterator for DerReader<'d> {
    type Item = Element<'d>;

    fn next(&mut self) -> Option<Element<'d>> {
        let tag = self.byte()?;
        let length = self.length()?;
        let (content, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(Element { tag, content })
    }
}

impl<'d> Element<'d> {
    /// A reader of the elements that this element contains.
    pub(super) fn inside(self) -> DerReader<'d> {
        DerReader(self.content)
    }

    /// The text of a string.
    pub(super) fn text(self) -> Option<&'d str> {
        let is_text = [tag::UTF8_STRING, tag::PRINTABLE_STRING, tag::IA5_STRING].contains(&self.tag);
        is_text.then(|| std::str::from_utf8(self.content).ok())?
    }

    /// A time in seconds since 1970: `YYMMDDhhmmssZ` or `YYYYMMDDhhmmssZ`.
    pub(super) fn time(self) -> Option<i64> {
        let digits = self.content.strip_suffix(b"Z")?;
        if !digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
        let number = |range: std::ops::Range<usize>| {
            let text = std::str::from_utf8(digits.get(range)?).ok()?;
            text.parse::<i64>().ok()
        };
        let (year, rest) = match (self.tag, digits.len()) {
            // RFC 5280: 50 to 99 are 1950 to 1999.
            (tag::UTC_TIME, 12) => {
                (number(0..2).map(|year| if year < 50 { 2000 + year } else { 1900 + year })?, 2)
            }
            (tag::GENERALIZED_TIME, 14) => (number(0..4)?, 4),
            _ => return None,
        };
        let part = |at: usize| number(rest + 2 * at..rest + 2 * at + 2);
        let (month, day) = (part(0)?, part(1)?);
        let seconds = part(2)? * 3_600 + part(3)? * 60 + part(4)?;
        Some(days_since_1970(year, month, day) * 86_400 + seconds)
    }
}

/// Days from 1 January 1970 to a day of the Gregorian calendar. Years begin in March here, so that the leap day is last.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_counted_from_1970() {
        for (tag, text, seconds) in [
            (tag::UTC_TIME, "700101000000Z", Some(0)),
            (tag::UTC_TIME, "491231235959Z", Some(2_524_607_999)),
            (tag::UTC_TIME, "500101000000Z", Some(-631_152_000)),
            (tag::GENERALIZED_TIME, "20240229120000Z", Some(1_709_208_000)),
            (tag::GENERALIZED_TIME, "99991231235959Z", Some(253_402_300_799)),
            (tag::UTC_TIME, "7001010000Z", None),
            (tag::UTC_TIME, "7001010000-1Z", None),
            (tag::GENERALIZED_TIME, "700101000000Z", None),
            (tag::INTEGER, "700101000000Z", None),
        ] {
            let element = Element { tag, content: text.as_bytes() };
            assert_eq!(element.time(), seconds, "{text}");
        }
    }

    #[test]
    fn lengths_are_definite_and_within_the_data() {
        let first = |der: &[u8]| DerReader::new(der).next().map(|element| element.content.to_vec());
        assert_eq!(first(&[4, 2, 7, 8, 9]), Some(vec![7, 8]));
        assert_eq!(first(&[4, 0x81, 1, 7]), Some(vec![7]));
        assert_eq!(first(&[4, 0x84, 0, 0, 0, 1, 7]), Some(vec![7]));
        for bad in [
            &[4][..],
            &[4, 1],
            &[4, 0x80, 0, 0],
            &[4, 0x85, 0, 0, 0, 0, 0],
            &[4, 0x84, 0xff, 0xff, 0xff, 0xff],
        ] {
            assert_eq!(first(bad), None, "{bad:?}");
        }
    }
}
