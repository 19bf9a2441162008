//! Recognises errors that say that the request exceeds the model's context.

/// Codes and words of such errors, in lower case.
const MARKS: [&str; 31] = [
    "context_length_exceeded",
    "contextwindowexceeded",
    "exceed_context_size",
    "model_max_prompt_tokens_exceeded",
    "request_too_large",
    "context length",
    "context limit",
    "context size",
    "context window",
    "maximum context",
    "max context",
    "maximum model length",
    "maximum prompt length",
    "maximum number of tokens allowed",
    "model token limit",
    "prompt exceeds max length",
    "prompt is too long",
    "prompt token count",
    "prompt too large",
    "prompt too long",
    "input is too long",
    "input length exceeds",
    "input token count",
    "input tokens exceed",
    "input length and `max_tokens` exceed",
    "`inputs` must have less than",
    "`inputs` tokens + `max_new_tokens`",
    "max_tokens must be at least 1, got -",
    "range of input length should be",
    "reduce the length of the",
    "too many tokens",
];

/// Text of OpenAI's error for a request that exceeds a whole minute's token limit by itself.
const NEVER_ALLOWED: &str = "request too large for";

/// True if an error with this status says that the request is too long. `codes` and `message` are in lower case.
pub(in crate::model) fn says_overflow(status: Option<u16>, codes: &str, message: &str) -> bool {
    let may = status.is_none_or(|status| matches!(status, 400 | 413 | 422 | 500..=599));
    may && MARKS.iter().any(|mark| codes.contains(mark) || message.contains(mark))
}

/// True if a rate-limit error is about the size of this single request, so that waiting does not help.
pub(in crate::model) fn never_allowed(status: Option<u16>, message: &str) -> bool {
    matches!(status, None | Some(413 | 429)) && message.contains(NEVER_ALLOWED)
}

#[cfg(test)]
mod tests {
    use crate::model::ModelErrorKind;
    use crate::model::response::failure::ProviderFailure;

    #[track_caller]
    fn check(kind: ModelErrorKind, cases: &[(&str, Option<u16>, &str)]) {
        for (who, status, body) in cases {
            let error = ProviderFailure::read(*status, body).into_error(None);
            assert_eq!(error.kind, kind, "{who}: {body}");
        }
    }

    #[test]
    fn large_providers() {
        check(
            ModelErrorKind::ContextOverflow,
            &[
                (
                    "OpenAI",
                    Some(400),
                    r#"{"error":{"message":"This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens. Please reduce the length of the messages.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}"#,
                ),
                (
                    "OpenAI, another model",
                    Some(400),
                    r#"{"error":{"message":"Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 300000 tokens.","type":"invalid_request_error","code":null}}"#,
                ),
                (
                    "OpenAI, in a stream",
                    None,
                    r#"{"error":{"message":"Your input exceeds the context window of this model. Please adjust your input and try again.","type":"invalid_request_error","code":"context_length_exceeded"}}"#,
                ),
                (
                    "OpenAI, more than a minute's tokens",
                    Some(429),
                    r#"{"error":{"message":"Request too large for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Requested 40000.","type":"tokens","code":"rate_limit_exceeded"}}"#,
                ),
                (
                    "Anthropic",
                    Some(400),
                    r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 213462 tokens > 200000 maximum"}}"#,
                ),
                (
                    "Anthropic, with the answer",
                    Some(400),
                    r#"{"type":"error","error":{"type":"invalid_request_error","message":"input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length or `max_tokens` and try again"}}"#,
                ),
                (
                    "Anthropic, in bytes",
                    Some(413),
                    r#"{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}"#,
                ),
                (
                    "Anthropic, in a stream",
                    None,
                    r#"{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}"#,
                ),
                (
                    "Google",
                    Some(400),
                    r#"[{"error":{"code":400,"message":"The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).","status":"INVALID_ARGUMENT"}}]"#,
                ),
                ("Bedrock", Some(400), r#"{"message":"Input is too long for requested model."}"#),
            ],
        );
    }

    #[test]
    fn smaller_providers_and_gateways() {
        check(
            ModelErrorKind::ContextOverflow,
            &[
                (
                    "xAI",
                    Some(400),
                    r#"{"code":"Client specified an invalid argument","error":"This model's maximum prompt length is 131072 but the request contains 537812 tokens."}"#,
                ),
                (
                    "Groq",
                    Some(400),
                    r#"{"error":{"message":"Please reduce the length of the messages or completion.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}"#,
                ),
                (
                    "Groq, more than a minute's tokens",
                    Some(413),
                    r#"{"error":{"message":"Request too large for model `m` in organization `o` on tokens per minute (TPM): Limit 6000, Requested 9000, please reduce your message size and try again.","type":"tokens","code":"rate_limit_exceeded"}}"#,
                ),
                (
                    "OpenRouter",
                    Some(400),
                    r#"{"error":{"message":"This endpoint's maximum context length is 65536 tokens. However, you requested about 90000 tokens (80000 of text input, 10000 in the output). Please reduce the length of either one.","code":400}}"#,
                ),
                (
                    "OpenRouter, in a stream",
                    None,
                    r#"{"error":{"message":"This endpoint's maximum context length is 65536 tokens.","code":400},"choices":[]}"#,
                ),
                (
                    "Mistral",
                    Some(400),
                    r#"{"object":"error","message":"Prompt contains 65673 tokens and 0 draft tokens, too large for model with 32768 maximum context length","type":"invalid_request_prompt","code":"3051"}"#,
                ),
                (
                    "DeepSeek",
                    Some(400),
                    r#"{"error":{"message":"This model's maximum context length is 131072 tokens. However, you requested 140000 tokens (132000 in the messages, 8000 in the completion).","type":"invalid_request_error"}}"#,
                ),
                (
                    "Kimi",
                    Some(400),
                    r#"{"error":{"message":"Invalid request: Your request exceeded model token limit: 262144 (requested: 291351)","type":"invalid_request_error"}}"#,
                ),
                (
                    "Qwen",
                    Some(400),
                    r#"{"error":{"code":"invalid_parameter_error","message":"<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 129024]","type":"invalid_request_error"}}"#,
                ),
                ("GLM", Some(400), r#"{"error":{"code":"1261","message":"Prompt exceeds max length"}}"#),
                (
                    "MiniMax",
                    Some(400),
                    r#"{"error":{"message":"invalid params, context window exceeds limit (2013)"}}"#,
                ),
                (
                    "GitHub",
                    Some(400),
                    r#"{"error":{"message":"prompt token count of 140000 exceeds the limit of 128000","code":"model_max_prompt_tokens_exceeded"}}"#,
                ),
                (
                    "Fireworks",
                    Some(400),
                    r#"{"error":{"object":"error","type":"invalid_request_error","message":"The prompt is too long: 140000, model maximum context length: 131071"}}"#,
                ),
                (
                    "LiteLLM",
                    Some(400),
                    r#"{"error":{"message":"litellm.BadRequestError","type":"ContextWindowExceededError","code":"400"}}"#,
                ),
                (
                    "Cohere",
                    Some(400),
                    r#"{"message":"too many tokens: size limit exceeded by 11326 tokens. Try using shorter or fewer inputs."}"#,
                ),
                ("a proxy that looks at bytes", Some(413), "<html>Request Entity Too Large</html>"),
                ("a provider without words", Some(413), ""),
            ],
        );
    }

    #[test]
    fn servers_that_people_run_themselves() {
        check(
            ModelErrorKind::ContextOverflow,
            &[
                (
                    "vLLM",
                    Some(400),
                    r#"{"error":{"message":"This model's maximum context length is 2048 tokens. However, your request has 8 input tokens plus 2045 'max_tokens'. Please reduce one or the other. (parameter=input_tokens, max_tokens, value=(8, 2045))","type":"BadRequestError","param":"input_tokens, max_tokens","code":400}}"#,
                ),
                (
                    "vLLM, older",
                    Some(400),
                    r#"{"object":"error","message":"max_tokens must be at least 1, got -186.","type":"BadRequestError","param":null,"code":400}"#,
                ),
                (
                    "vLLM, from its engine",
                    Some(400),
                    r#"{"error":{"message":"The decoder prompt (length 40000) is longer than the maximum model length of 32768.","type":"BadRequestError","code":400}}"#,
                ),
                (
                    "SGLang",
                    Some(400),
                    r#"{"object":"error","message":"The input (12345 tokens) is longer than the model's context length (8192 tokens).","type":"BadRequestError","code":400}"#,
                ),
                (
                    "llama.cpp",
                    Some(400),
                    r#"{"error":{"code":400,"message":"the request exceeds the available context size, try increasing it","type":"exceed_context_size_error","n_prompt_tokens":14429,"n_ctx":8192}}"#,
                ),
                (
                    "llama.cpp, older",
                    Some(500),
                    r#"{"error":{"code":500,"message":"the request exceeds the available context size. try increasing the context size or enable context shift","type":"server_error"}}"#,
                ),
                (
                    "llama-cpp-python",
                    Some(500),
                    r#"{"error":{"message":"Requested tokens (2285) exceed context window of 2048","type":"internal_server_error","code":null}}"#,
                ),
                (
                    "Ollama",
                    Some(400),
                    r#"{"error":{"message":"prompt too long; exceeded max context length by 1234 tokens","type":"invalid_request_error"}}"#,
                ),
                ("Ollama, plain", Some(400), r#"{"error":"the input length exceeds the context length"}"#),
                (
                    "LM Studio",
                    Some(400),
                    r#"{"error":"The number of tokens to keep from the initial prompt is greater than the context length. Try to load the model with a larger context length, or provide a shorter input"}"#,
                ),
                (
                    "TGI",
                    Some(422),
                    r#"{"error":"Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens and 512 `max_new_tokens`","error_type":"validation"}"#,
                ),
                (
                    "TGI, input alone",
                    Some(422),
                    r#"{"error":"Input validation error: `inputs` must have less than 4095 tokens. Given: 5000","error_type":"validation"}"#,
                ),
            ],
        );
    }

    #[test]
    fn what_only_sounds_alike() {
        check(
            ModelErrorKind::BadRequest,
            &[
                (
                    "too much output asked for",
                    Some(400),
                    r#"{"type":"error","error":{"type":"invalid_request_error","message":"max_tokens: 200000 > 64000, which is the maximum allowed number of output tokens for claude"}}"#,
                ),
                (
                    "a model that is not there",
                    Some(404),
                    r#"{"error":"no model with a context window of 1M"}"#,
                ),
                ("a text that is too long", Some(400), r#"{"error":{"message":"name is too long"}}"#),
            ],
        );
        check(
            ModelErrorKind::RateLimited,
            &[
                (
                    "many requests",
                    Some(429),
                    r#"{"error":{"message":"Rate limit reached for gpt-4o on tokens per min (TPM): Limit 30000, Used 29000, Requested 4000. Reduce the length of the messages.","type":"tokens","code":"rate_limit_exceeded"}}"#,
                ),
                (
                    "with a word of the context",
                    Some(429),
                    r#"{"error":{"message":"slow down, long context window"}}"#,
                ),
            ],
        );
        check(
            ModelErrorKind::Unauthorised,
            &[("a key", Some(403), r#"{"error":"not for this context window"}"#)],
        );
    }
}
