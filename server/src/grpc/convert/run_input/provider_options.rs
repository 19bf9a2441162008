//! The check of `provider_options_json`. A caller may set a vendor's ordinary options. It may not set what the server writes
//! itself, nor what changes the model, the conversation, the tools, the form of the response, or the place of the data.

use serde_json::{Map, Value};

use crate::grpc::convert::{json_object, unreadable};

/// Names that no request may set, in lower case and without `_`. The configuration may, because the operator writes it.
/// The table of the guide (`docs/guide/models.md`) has the same groups.
const RESERVED: &[&[&str]] = &[MODEL, CONVERSATION, TOOLS, RESPONSE_FORM, DATA];

/// Another model, another server behind a router, or other weights.
const MODEL: &[&str] = &[
    "adapter",
    "apibase",
    "apikey",
    "baseurl",
    "customllmprovider",
    "deployment",
    "engine",
    "extraheaders",
    "extraquery",
    "fallbacks",
    "headers",
    "lora",
    "loraadapter",
    "lorarequest",
    "model",
    "modelid",
    "modellist",
    "modelname",
    "models",
    "preset",
    "provider",
    "provideroptions",
    "route",
    "router",
];

/// Fields for the input of the model: the prompt, the history, and what a vendor adds to them, shortens or repeats.
const CONVERSATION: &[&str] = &[
    "cachedcontent",
    "chathistory",
    "chattemplate",
    "contents",
    "contextmanagement",
    "conversation",
    "conversationid",
    "debug",
    "documents",
    "echo",
    "history",
    "input",
    "instructions",
    "message",
    "messages",
    "preamble",
    "previousinteractionid",
    "previousresponseid",
    "prompt",
    "promptid",
    "suffix",
    "system",
    "systeminstruction",
    "systemprompt",
    "thread",
    "threadid",
    "transforms",
    "truncation",
];

/// Tools, also those that the vendor runs itself.
const TOOLS: &[&str] = &[
    "agentid",
    "anthropicbeta",
    "assistantid",
    "betas",
    "connectors",
    "container",
    "datasources",
    "enablesearch",
    "functioncall",
    "functions",
    "mcpservers",
    "plugins",
    "searchoptions",
    "searchparameters",
    "skills",
    "toolchoice",
    "toolconfig",
    "toolresources",
    "tools",
    "websearch",
    "websearchoptions",
];

/// The form of the response: the server reads one stream, with its token counts.
const RESPONSE_FORM: &[&str] =
    &["background", "bestof", "candidatecount", "mockresponse", "n", "stream", "streaming", "streamoptions"];

/// The place of the data, and the others that it goes to.
const DATA: &[&str] = &[
    "callback",
    "callbacks",
    "callbackurl",
    "failurecallback",
    "guardrails",
    "inferencegeo",
    "kvtransferparams",
    "modelarmorconfig",
    "promptcacheretention",
    "store",
    "successcallback",
    "webhook",
    "webhookurl",
];

/// Objects whose members a vendor or a proxy reads as if they stood beside them. In other objects, such as schemas, every name is
/// allowed.
const WRAPPERS: [&str; 6] =
    ["chattemplatekwargs", "extrabody", "generationconfig", "google", "modelkwargs", "vertex"];

/// Checks that the options of a request do not replace what the server itself writes into a provider's request. Otherwise
/// a caller could leave its agent's model, prompt and tools, or read what the provider keeps.
pub(super) fn check(text: &str) -> Result<(), String> {
    json_object(text)?;
    // If a name is there twice, the last one counts, here and in the request to the provider.
    let fields: Map<String, Value> = serde_json::from_str(text).map_err(|error| unreadable(&error))?;
    check_fields(&fields)
}

fn check_fields(fields: &Map<String, Value>) -> Result<(), String> {
    for (name, value) in fields {
        // Some servers compare names without case by the rules of Unicode, where `ſ` is an `s`.
        if !name.is_ascii() {
            return Err(format!("must not set {name:?}: names have ASCII characters alone"));
        }
        let plain = plain(name);
        if RESERVED.iter().any(|group| group.contains(&plain.as_str())) {
            return Err(format!("must not set {name:?}, which only the server sets"));
        }
        if let (true, Value::Object(within)) = (WRAPPERS.contains(&plain.as_str()), value) {
            check_fields(within)?;
        }
    }
    Ok(())
}

/// The name in one spelling: some providers read `systemInstruction` and `system_instruction` as the same field.
fn plain(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|letter| letter.to_ascii_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_names_are_in_one_spelling_and_once() {
        let mut names = RESERVED.concat();
        assert!(names.iter().all(|name| plain(name) == **name), "{names:?}");
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(WRAPPERS.iter().all(|name| plain(name) == *name && !names.contains(name)));
    }

    #[test]
    fn a_name_is_refused_in_every_spelling_and_place_where_a_vendor_reads_it() {
        for options in [
            r#"{"mcp_servers":[]}"#,
            r#"{"mcpServers":[]}"#,
            r#"{"MCP-Servers":[]}"#,
            r#"{" model":"x"}"#,
            r#"{"\u006dodel":"x"}"#,
            r#"{"model":"x","model":null}"#,
            "{\"\u{17f}ystem\":\"x\"}",
            r#"{"generationConfig":{"candidateCount":2}}"#,
            r#"{"generation_config":{"candidate_count":2}}"#,
            r#"{"extra_body":{"google":{"cached_content":"x"}}}"#,
            r#"{"chat_template_kwargs":{"tools":[]}}"#,
        ] {
            let refused = check(options).unwrap_err();
            assert!(refused.starts_with("must not set"), "{options}: {refused}");
        }
    }

    #[test]
    fn ordinary_options_are_the_callers() {
        for options in [
            r#"{"service_tier":"flex","user":"u","metadata":{"model":"m"},"safety_identifier":"s"}"#,
            r#"{"reasoning":{"summary":"auto"},"text":{"verbosity":"low"},"include":[],"top_k":3}"#,
            r#"{"generationConfig":{"thinkingConfig":{"thinkingBudget":1},"topK":3},"safetySettings":[]}"#,
            r#"{"response_format":{"json_schema":{"schema":{"properties":{"input":{},"n":{}}}}}}"#,
            r#"{"chat_template_kwargs":{"enable_thinking":false},"cache_control":{"type":"ephemeral"}}"#,
            r#"{"thinking":{"type":"enabled"},"parallel_tool_calls":false,"prompt_cache_key":"k"}"#,
            r#"{"extra_body":{"google":{"thinking_config":{}}},"labels":{"größe":"1"}}"#,
        ] {
            assert_eq!(check(options), Ok(()), "{options}");
        }
    }
}
