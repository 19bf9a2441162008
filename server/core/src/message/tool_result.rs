//! The end of a tool call as the model reads it: status, text, pictures, files and links.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::{Image, PART_BYTES};
use crate::blob::BlobDigest;
use crate::id::CallSlot;
use crate::tool::Digest;

/// End of a tool call, as the model is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolStatus {
    /// The tool ran and returned a result.
    Succeeded,
    /// The tool ran, or tried to, and reports an error.
    Failed,
    /// The call was not dispatched: unknown tool, bad arguments, a limit, or a configured rule that denies it.
    Rejected,
    /// A person denied the call, now or by a remembered decision; or nobody answered in time.
    Denied,
    /// A person answered in place of the tool.
    Answered,
    /// The run was aborted or ended before the call did.
    Aborted,
    /// No result arrived before the call's deadline.
    TimedOut,
    /// No host was available for the tool.
    Unavailable,
    /// Nobody knows if the call ran.
    OutcomeUnknown,
}

impl ToolStatus {
    /// Every status, in the order of the contract's enum.
    pub const ALL: [Self; 9] = [
        Self::Succeeded,
        Self::Failed,
        Self::Rejected,
        Self::Denied,
        Self::Answered,
        Self::Aborted,
        Self::TimedOut,
        Self::Unavailable,
        Self::OutcomeUnknown,
    ];

    /// The status as it is stored, and as metrics label it: `timed_out`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Rejected => "rejected",
            Self::Denied => "denied",
            Self::Answered => "answered",
            Self::Aborted => "aborted",
            Self::TimedOut => "timed_out",
            Self::Unavailable => "unavailable",
            Self::OutcomeUnknown => "outcome_unknown",
        }
    }

    /// True if the model is told that the result is an error.
    #[must_use]
    pub fn is_error(self) -> bool {
        !matches!(self, Self::Succeeded | Self::Answered)
    }
}

/// The result of one tool call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolResult {
    /// The call that the result belongs to.
    pub slot: CallSlot,
    /// The provider's id of that call.
    pub provider_id: String,
    /// Name of the tool that was called.
    pub name: String,
    /// Success, or the reason why there is none.
    pub status: ToolStatus,
    /// The output, often JSON. Always whole, even if the model reads only its beginning.
    pub output: String,
    /// Pictures that belong to the output.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
    /// The typed output, files and links beside the text.
    #[serde(default, skip_serializing_if = "Attachments::is_empty")]
    pub attachments: Attachments,
}

impl ToolResult {
    /// Approximate size in bytes, in memory and on the wire.
    #[must_use]
    pub fn size(&self) -> usize {
        self.output.len() + self.images.iter().map(Image::size).sum::<usize>() + self.attachments.size()
    }

    /// The text that the model reads: the output, or the typed output where that is empty, then the files and links.
    #[must_use]
    pub fn text_for_model(&self) -> Cow<'_, str> {
        let Attachments { structured, files, links } = &self.attachments;
        let text =
            if self.output.is_empty() { structured.as_deref().unwrap_or_default() } else { &self.output };
        if files.is_empty() && links.is_empty() {
            return Cow::Borrowed(text);
        }
        let file = |File { name, media_type, size, source }: &File| {
            let separator = if media_type.is_empty() { "" } else { ", " };
            let facts = format!("{media_type}{separator}{size} bytes");
            match source {
                FileSource::Inline { .. } => format!("- file {name} ({facts})"),
                FileSource::Blob { digest } => format!("- file {name} ({facts}, {digest})"),
            }
        };
        let link = |link: &Link| match link.title.as_str() {
            "" => format!("- link {}", link.url),
            title => format!("- link {title}: {}", link.url),
        };
        let lines: Vec<String> = files.iter().map(file).chain(links.iter().map(link)).collect();
        let separator = if text.is_empty() { "" } else { "\n\n" };
        Cow::Owned(format!("{text}{separator}{}", lines.join("\n")))
    }
}

/// A result's content beside its text and pictures.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachments {
    /// The output as JSON text that follows the tool's output schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured: Option<String>,
    /// Files. The model reads their names, types and sizes, and the digests of blobs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<File>,
    /// Links. The model reads them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<Link>,
}

/// A file that a tool gives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    /// Name for people, without folders.
    pub name: String,
    /// Media type, such as `text/csv`.
    pub media_type: String,
    /// Length of the contents in bytes.
    pub size: u64,
    /// Place of the contents.
    #[serde(flatten)]
    pub source: FileSource,
}

/// The place of a file's contents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "source", rename_all = "snake_case")]
pub enum FileSource {
    /// The result carries the contents.
    Inline {
        /// The bytes in standard base64.
        base64: String,
    },
    /// The store has the contents apart from messages.
    Blob {
        /// The name of the contents.
        digest: BlobDigest,
    },
}

/// A link that a tool gives. Nobody but people follows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// Address, with the scheme `https:` or `http:`.
    pub url: String,
    /// Title for people; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub title: String,
}

impl Attachments {
    /// True if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The blobs that the files are in. The same one may come more than once.
    pub fn blobs(&self) -> impl Iterator<Item = &BlobDigest> {
        self.files.iter().filter_map(|file| match &file.source {
            FileSource::Blob { digest } => Some(digest),
            FileSource::Inline { .. } => None,
        })
    }

    /// Digest of all of them.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(&[&serde_json::to_vec(self).expect("plain data serialises")])
    }

    fn size(&self) -> usize {
        let file = |file: &File| {
            let source = match &file.source {
                FileSource::Inline { base64 } => base64.len(),
                FileSource::Blob { digest } => digest.as_str().len(),
            };
            PART_BYTES + file.name.len() + file.media_type.len() + source
        };
        let link = |link: &Link| PART_BYTES + link.url.len() + link.title.len();
        self.structured.as_ref().map_or(0, String::len)
            + self.files.iter().map(file).sum::<usize>()
            + self.links.iter().map(link).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_type_is_told_by_its_size() {
        let file = |media_type: &str, source| File {
            name: "a.txt".to_owned(),
            media_type: media_type.to_owned(),
            size: 2,
            source,
        };
        let digest = BlobDigest::of_hash([0; 32]);
        let inline = || FileSource::Inline { base64: "YWI=".to_owned() };
        let blob = FileSource::Blob { digest: digest.clone() };
        let files = vec![file("", inline()), file("text/plain", inline()), file("", blob)];
        let result = ToolResult {
            slot: CallSlot { model_call: 1, position: 0 },
            provider_id: String::new(),
            name: "t".to_owned(),
            status: ToolStatus::Succeeded,
            output: String::new(),
            images: Vec::new(),
            attachments: Attachments { files, ..Attachments::default() },
        };
        let wanted = format!(
            "- file a.txt (2 bytes)\n- file a.txt (text/plain, 2 bytes)\n- file a.txt (2 bytes, {digest})"
        );
        assert_eq!(result.text_for_model(), wanted);
    }
}
