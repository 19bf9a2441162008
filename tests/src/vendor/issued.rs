//! The state that a vendor has issued, which it recognises in later requests.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde_json::Value;

use super::Format;

/// Everything that one vendor gave out.
pub(super) struct Issued {
    name: String,
    count: u64,
    /// Google's signatures, by themselves.
    pub(super) signatures: BTreeMap<String, Signed>,
    /// Anthropic's thoughts, by signature.
    pub(super) thoughts: BTreeMap<String, Thought>,
    /// The items of Responses, by id.
    pub(super) items: BTreeMap<String, Item>,
    /// OpenRouter's `reasoning_details`, by the id of the first call of their message.
    pub(super) details: BTreeMap<String, Value>,
    /// DeepSeek's `reasoning_content`, by the id of the first call of its message.
    pub(super) reasoning: BTreeMap<String, String>,
    /// Signatures and encrypted thoughts, for a test that looks where they are.
    pub(super) states: Vec<String>,
    /// Ids that mean something only together with state.
    pub(super) item_ids: Vec<String>,
}

/// A part that Google signed.
pub(super) struct Signed {
    /// A signature of one surface is refused by the other.
    pub(super) surface: Format,
    /// The call, or the text.
    pub(super) of: Value,
}

/// A thinking block with its signature.
pub(super) struct Thought {
    pub(super) family: String,
    /// Its text or, where it is redacted, its data.
    pub(super) text: String,
    /// `system`, `tools` and every block before it.
    pub(super) prefix: Value,
}

/// An item of an answer of Responses.
pub(super) struct Item {
    pub(super) family: String,
    /// As it was given.
    pub(super) item: Value,
    /// The item that it goes before.
    pub(super) following: Option<Value>,
    /// The reasoning that it was given with.
    pub(super) reasoning: Option<String>,
}

impl Issued {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            count: 0,
            signatures: BTreeMap::new(),
            thoughts: BTreeMap::new(),
            items: BTreeMap::new(),
            details: BTreeMap::new(),
            reasoning: BTreeMap::new(),
            states: Vec::new(),
            item_ids: Vec::new(),
        }
    }

    /// Random-looking base64 that is the same in every run of a test, and in no other place of it.
    pub(super) fn token(&mut self, length: usize) -> String {
        const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        self.count += 1;
        let letter = |at: usize| {
            let mut hasher = DefaultHasher::new();
            (&self.name, self.count, at).hash(&mut hasher);
            char::from(LETTERS[usize::try_from(hasher.finish() % 64).expect("it is small")])
        };
        (0..length).map(letter).collect()
    }

    /// State that a test can look for.
    pub(super) fn state(&mut self) -> String {
        let token = self.token(48);
        self.states.push(token.clone());
        token
    }

    /// The id of an item, which is state too.
    pub(super) fn item_id(&mut self, prefix: &str) -> String {
        let id = self.id(prefix);
        self.item_ids.push(id.clone());
        id
    }

    /// An id that begins like this.
    pub(super) fn id(&mut self, prefix: &str) -> String {
        format!("{prefix}{}", self.token(24).replace(['+', '/'], "0"))
    }
}
