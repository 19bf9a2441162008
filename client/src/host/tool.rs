//! A tool: its declaration, and the function that runs its calls.

use std::{future::Future, marker::PhantomData, sync::Arc, time::Duration};

use agentloop_proto::v1::{AttemptEffect, EffectClass, ToolDeclaration};
use schemars::{JsonSchema, generate::SchemaSettings};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use crate::host::{
    call::outcome::CallFuture,
    context::CallContext,
    error::{HostError, ToolError},
    output::IntoOutput,
};

const NAME_BYTES_MAX: usize = 64;
const DESCRIPTION_BYTES_MAX: usize = 16 * 1024;
const TITLE_BYTES_MAX: usize = 256;
const SCHEMA_BYTES_MAX: usize = 64 * 1024;

/// The arguments of a tool that takes none.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
pub struct NoArguments {}

/// A tool with the function that runs its calls.
#[derive(Clone)]
pub struct Tool {
    pub(crate) declaration: ToolDeclaration,
    pub(crate) handler: Arc<dyn Handler>,
}

impl Tool {
    /// Starts to build a tool. The name has 1 to 64 of `A-Z a-z 0-9 _ -`. The model reads the description to decide when
    /// to call the tool. By default the tool is UNSAFE: a call is never run twice unless a human agrees.
    #[expect(clippy::new_ret_no_self, reason = "a tool without a handler is no tool yet")]
    pub fn new(name: impl Into<String>, description: impl Into<String>) -> ToolBuilder {
        let declaration = ToolDeclaration {
            name: name.into(),
            description: description.into(),
            effect: EffectClass::Unsafe.into(),
            ..ToolDeclaration::default()
        };
        ToolBuilder { declaration }
    }

    /// The name by which the model calls the tool.
    pub fn name(&self) -> &str {
        &self.declaration.name
    }

    /// The declaration that the server gets.
    pub fn declaration(&self) -> &ToolDeclaration {
        &self.declaration
    }

    /// Checks the declaration against the server's rules, so that the error comes before a connection.
    pub(crate) fn check(&self) -> Result<(), HostError> {
        match problem(&self.declaration) {
            None => Ok(()),
            Some(problem) => {
                Err(HostError::InvalidTool { tool: self.name().to_owned(), problem: problem.to_owned() })
            }
        }
    }
}

impl std::fmt::Debug for Tool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tool").field("declaration", &self.declaration).finish_non_exhaustive()
    }
}

fn problem(tool: &ToolDeclaration) -> Option<&'static str> {
    let named = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if tool.name.is_empty() || tool.name.len() > NAME_BYTES_MAX || !tool.name.chars().all(named) {
        return Some("a name has 1 to 64 of A-Z a-z 0-9 _ -");
    }
    if tool.description.len() > DESCRIPTION_BYTES_MAX {
        return Some("the description is longer than 16 KiB");
    }
    if tool.title.len() > TITLE_BYTES_MAX || tool.title.contains(char::is_control) {
        return Some("the title is longer than 256 bytes, or not one line");
    }
    if tool.input_schema_json.len() > SCHEMA_BYTES_MAX {
        return Some("the schema of the arguments is larger than 64 KiB");
    }
    let schema: Option<Value> = serde_json::from_str(&tool.input_schema_json).ok();
    if schema.is_none_or(|schema| schema.get("type") != Some(&Value::from("object"))) {
        return Some("the arguments must be a JSON object: take a struct, or NoArguments");
    }
    None
}

/// Builder of a [`Tool`].
#[derive(Debug, Clone)]
pub struct ToolBuilder {
    declaration: ToolDeclaration,
}

impl ToolBuilder {
    /// Declares that a call changes nothing: it may run any number of times.
    pub fn read_only(self) -> Self {
        self.effect(EffectClass::ReadOnly)
    }

    /// Declares that a call that runs twice has the same effect as one that runs once.
    pub fn idempotent(self) -> Self {
        self.effect(EffectClass::Idempotent)
    }

    /// Declares that the tool lets each [`CallContext::idempotency_key`] take effect once.
    pub fn keyed(self) -> Self {
        self.effect(EffectClass::Keyed)
    }

    /// Sets the effect class, which says if a call may run twice.
    pub fn effect(mut self, effect: EffectClass) -> Self {
        self.declaration.effect = effect.into();
        self
    }

    /// Sets the title of a call for people, such as `Read {path}`. Each `{name}` stands for that argument of the call.
    /// At most 256 bytes, on one line.
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.declaration.title = title.into();
        self
    }

    /// Declares the JSON schema of [`Output::structured`](crate::host::Output::structured), as JSON text of at most 64 KiB.
    /// The server fails a call whose typed output does not follow it.
    pub fn output_schema_json(mut self, schema: impl Into<String>) -> Self {
        self.declaration.output_schema_json = schema.into();
        self
    }

    /// Lets a call run only after a human approves it.
    pub fn requires_approval(mut self) -> Self {
        self.declaration.requires_approval = true;
        self
    }

    /// Gives each call a runtime that the host opens for its run: see [`crate::host::Runtimes`].
    pub fn requires_runtime(mut self) -> Self {
        self.declaration.requires_runtime = true;
        self
    }

    /// Sets the time after which the server cancels a call. Default: the server's.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.declaration.timeout = prost_types::Duration::try_from(timeout).ok();
        self
    }

    /// Declares that a passed deadline is an outcome that the model reads, though the tool is UNSAFE. Without this, the
    /// server asks a human what became of such a call.
    pub fn deadline_is_outcome(mut self) -> Self {
        self.declaration.deadline_is_outcome = true;
        self
    }

    /// Sets the number of calls of this tool that one host runs at a time. Default: the host's concurrency.
    pub fn max_concurrency(mut self, calls: u32) -> Self {
        self.declaration.max_concurrency = Some(calls);
        self
    }

    /// Declares that the tool sends output while it runs; see [`CallContext::output`].
    pub fn streams_output(mut self) -> Self {
        self.declaration.streams_output = true;
        self
    }

    /// Sets the JSON schema of the arguments, in place of the one derived from their type.
    pub fn input_schema(mut self, schema: &Value) -> Self {
        self.declaration.input_schema_json = schema.to_string();
        self
    }

    /// Sets the JSON schema of the arguments as text, for a tool that hosts in other languages serve, too: their texts must
    /// be equal.
    pub fn input_schema_json(mut self, schema: impl Into<String>) -> Self {
        self.declaration.input_schema_json = schema.into();
        self
    }

    /// Sets the function that runs a call, and completes the tool. The schema that the model sees is derived from the
    /// type of the arguments; doc comments become descriptions. A call whose arguments do not fit the type is rejected.
    pub fn handler<A, F, Fut, R>(mut self, run: F) -> Tool
    where
        A: DeserializeOwned + JsonSchema + Send + 'static,
        F: Fn(A, CallContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, ToolError>> + Send + 'static,
        R: IntoOutput + 'static,
    {
        if self.declaration.input_schema_json.is_empty() {
            self.declaration.input_schema_json = schema_of::<A>();
        }
        Tool {
            declaration: self.declaration,
            handler: Arc::new(TypedHandler { run: Arc::new(run), arguments: PhantomData }),
        }
    }
}

/// The schema of a type, without references, because not all models and validators follow them.
fn schema_of<A: JsonSchema>() -> String {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    settings.into_generator().into_root_schema_for::<A>().as_value().to_string()
}

/// A tool's function, with the type of its arguments erased.
pub(crate) trait Handler: Send + Sync {
    /// Parses the arguments and returns the call, ready to run.
    ///
    /// # Errors
    /// A description of the arguments' fault.
    fn prepare(&self, arguments_json: &str, context: CallContext) -> Result<CallFuture, String>;
}

struct TypedHandler<A, F> {
    run: Arc<F>,
    arguments: PhantomData<fn(A)>,
}

impl<A, F, Fut, R> Handler for TypedHandler<A, F>
where
    A: DeserializeOwned + Send + 'static,
    F: Fn(A, CallContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, ToolError>> + Send + 'static,
    R: IntoOutput + 'static,
{
    fn prepare(&self, arguments_json: &str, context: CallContext) -> Result<CallFuture, String> {
        let json = if arguments_json.is_empty() { "{}" } else { arguments_json };
        let arguments = serde_json::from_str(json).map_err(|error| error.to_string())?;
        let run = Arc::clone(&self.run);
        // The function is called inside the future, so that its panic ends the call and not the host.
        Ok(Box::pin(async move {
            let value = run(arguments, context).await?;
            value.into_output().map_err(|error| {
                ToolError::failed(format!("the result cannot be written as JSON: {error}"))
                    .with_effect(AttemptEffect::Done)
            })
        }))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(Deserialize, JsonSchema)]
    struct Inner {
        #[expect(dead_code, reason = "only the schema matters")]
        depth: u8,
    }

    #[derive(Deserialize, JsonSchema)]
    struct Arguments {
        /// Name of a city.
        #[expect(dead_code, reason = "only the schema matters")]
        place: String,
        #[expect(dead_code, reason = "only the schema matters")]
        inner: Option<Inner>,
    }

    async fn nothing<A>(_: A, _: CallContext) -> Result<(), ToolError> {
        Ok(())
    }

    #[test]
    fn a_title_is_declared_and_is_one_short_line() {
        let titled = |title: &str| Tool::new("read", "Reads").title(title).handler(nothing::<Arguments>);
        assert_eq!(titled("Read {place}").declaration().title, "Read {place}");
        assert!(titled("Read {place}").check().is_ok());
        for bad in ["two\nlines", &"x".repeat(TITLE_BYTES_MAX + 1)] {
            let refused = titled(bad).check();
            assert!(
                matches!(refused, Err(HostError::InvalidTool { problem, .. }) if problem.contains("title"))
            );
        }
    }

    #[test]
    fn the_schema_is_derived_and_self_contained() {
        let tool = Tool::new("t", "d").handler(nothing::<Arguments>);
        let schema: Value = serde_json::from_str(&tool.declaration.input_schema_json).expect("json");
        assert_eq!(schema["properties"]["place"]["description"], "Name of a city.");
        assert_eq!(schema["required"], json!(["place"]));
        assert!(!tool.declaration.input_schema_json.contains("$ref"), "{schema}");
        assert!(tool.check().is_ok());
    }

    #[test]
    fn a_tool_is_unsafe_unless_it_says_otherwise() {
        assert_eq!(
            Tool::new("t", "d").handler(nothing::<NoArguments>).declaration.effect(),
            EffectClass::Unsafe
        );
        let tool = Tool::new("t", "d").read_only().handler(nothing::<NoArguments>);
        assert_eq!(tool.declaration.effect(), EffectClass::ReadOnly);
    }

    #[test]
    fn a_tool_that_a_server_would_refuse_is_refused_here() {
        let long = "n".repeat(65);
        for name in ["", "with space", "ä", long.as_str()] {
            assert!(Tool::new(name, "d").handler(nothing::<NoArguments>).check().is_err(), "{name}");
        }
        assert!(Tool::new("t", "d").handler(nothing::<Vec<u8>>).check().is_err(), "an array is no object");
        assert!(Tool::new("t", "d".repeat(16 * 1024 + 1)).handler(nothing::<NoArguments>).check().is_err());
    }

    #[test]
    fn a_schema_can_be_given() {
        let given = json!({"type": "object", "properties": {"x": {"type": "integer"}}});
        let tool = Tool::new("t", "d").input_schema(&given).handler(nothing::<Value>);
        assert_eq!(tool.declaration.input_schema_json, given.to_string());
        assert!(tool.check().is_ok());

        let text = r#"{"type":"object", "properties":{}}"#;
        let tool = Tool::new("t", "d").input_schema_json(text).handler(nothing::<Value>);
        assert_eq!(tool.declaration.input_schema_json, text);
    }
}
