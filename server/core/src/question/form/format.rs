//! Formats of texts, and the check of a text in each.

use serde::Deserialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Format {
    Email,
    Uri,
    Date,
    DateTime,
}

impl Format {
    pub(super) fn check(self, text: &str) -> Result<(), String> {
        let fits = match self {
            Self::Email => is_email(text),
            Self::Uri => is_uri(text),
            Self::Date => is_date(text),
            Self::DateTime => {
                text.split_once(['T', 't']).is_some_and(|(date, time)| is_date(date) && is_time(time))
            }
        };
        let wanted = match self {
            Self::Email => "an e-mail address",
            Self::Uri => "a URI such as https://example.org",
            Self::Date => "a date such as 2027-01-31",
            Self::DateTime => "a time such as 2027-01-31T15:04:05Z",
        };
        if fits { Ok(()) } else { Err(format!("must be {wanted}")) }
    }
}

fn is_email(text: &str) -> bool {
    let plain = !text.chars().any(|c| c.is_whitespace() || c.is_control());
    let parts = text.rsplit_once('@').filter(|(name, host)| !name.is_empty() && !host.is_empty());
    // Only a name in quotes may have a second `@`.
    let is_quoted = |name: &str| name.len() > 2 && name.starts_with('"') && name.ends_with('"');
    plain && parts.is_some_and(|(name, _)| !name.contains('@') || is_quoted(name))
}

fn is_uri(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let begins = scheme.starts_with(|c: char| c.is_ascii_alphabetic());
    let scheme = scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    begins && scheme && !rest.is_empty() && !rest.chars().any(|c| c.is_whitespace() || c.is_control())
}

/// Two or four digits as a number.
fn digits(text: &str, count: usize) -> Option<u32> {
    (text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
}

fn is_date(text: &str) -> bool {
    let mut pieces = text.splitn(3, '-');
    let mut piece = |count| digits(pieces.next()?, count);
    let (Some(year), Some(month), Some(day)) = (piece(4), piece(2), piece(2)) else { return false };
    let leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    let days = match month {
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        1..=12 => 31,
        _ => return false,
    };
    (1..=days).contains(&day)
}

fn is_time(text: &str) -> bool {
    let Some(at) = text.find(['Z', 'z', '+', '-']) else { return false };
    let (time, zone) = text.split_at(at);
    let (clock, fraction) =
        time.split_once('.').map_or((time, None), |(clock, fraction)| (clock, Some(fraction)));
    let fraction =
        fraction.is_none_or(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()));
    let zone =
        matches!(zone, "Z" | "z") || zone.strip_prefix(['+', '-']).is_some_and(|zone| is_clock(zone, 2));
    fraction && zone && is_clock(clock, 3)
}

/// Hours and minutes, and seconds as the third piece.
fn is_clock(text: &str, count: usize) -> bool {
    let pieces: Vec<Option<u32>> = text.split(':').map(|piece| digits(piece, 2)).collect();
    let bounds = [23, 59, 60];
    pieces.len() == count
        && pieces.iter().zip(bounds).all(|(piece, max)| piece.is_some_and(|piece| piece <= max))
}
