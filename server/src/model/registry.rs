//! The configured providers: builds each of them, and finds the one that a model reference names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use agentloop_core::agent::ModelTimeouts;
use agentloop_core::context::prompt::PromptTemplates;
use agentloop_core::model::facts::ModelFacts;

use crate::model::options::{InvalidProvider, ProviderError, ProviderKind, ProviderOptions, ScriptSource};
use crate::model::provider::anthropic::AnthropicModel;
use crate::model::provider::gemini::GeminiModel;
use crate::model::provider::openai::OpenAiModel;
use crate::model::provider::responses::ResponsesModel;
use crate::model::provider::scripted::{Script, ScriptedModel};
use crate::model::recording::{RecordingError, RecordingModel, RecordingWriter, ReplayModel};
use crate::model::request::output_limit::OutputLimited;
use crate::model::transport::http::{Http, HttpOptions};
use crate::model::{Model, Models, ProviderModels, UnknownModel};

/// All configured providers. Built at start and read-only afterwards.
#[derive(Clone, Default)]
pub struct ProviderRegistry {
    providers: BTreeMap<String, Arc<dyn Model>>,
    /// Configured facts, by `provider/model`.
    facts: BTreeMap<String, ModelFacts>,
    /// Prompt templates, by provider name.
    templates: BTreeMap<String, PromptTemplates>,
}

impl std::fmt::Debug for ProviderRegistry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.providers.keys()).finish()
    }
}

impl ProviderRegistry {
    /// Builds every provider. Opens no connection, but reads scripts and recordings, and opens the recordings to write.
    ///
    /// # Errors
    /// If a provider cannot be used as configured.
    pub fn new(
        http: HttpOptions,
        providers: impl IntoIterator<Item = ProviderOptions>,
    ) -> Result<Self, InvalidProvider> {
        let mut builder = Builder { http: Http::new(http), recordings: BTreeMap::new() };
        let mut registry = Self::default();
        for provider in providers {
            let added = builder.build(&provider).and_then(|model| registry.add(&provider.name, model));
            added.map_err(|cause| InvalidProvider { name: provider.name.clone(), cause })?;
            let ProviderOptions { name, models, templates, .. } = provider;
            registry
                .facts
                .extend(models.into_iter().map(|(model, facts)| (format!("{name}/{model}"), facts)));
            registry.templates.insert(name, templates);
        }
        Ok(registry)
    }

    /// Adds a model that is not configured, such as one that the embedding program implements.
    ///
    /// # Errors
    /// If the name is empty, contains `/`, or is taken.
    pub fn add(&mut self, name: &str, model: Arc<dyn Model>) -> Result<(), ProviderError> {
        if name.is_empty() || name.contains('/') {
            return Err(ProviderError::Name);
        }
        if self.providers.contains_key(name) {
            return Err(ProviderError::Duplicate);
        }
        self.providers.insert(name.to_owned(), model);
        Ok(())
    }

    /// Names of all providers, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.providers.keys().map(String::as_str)
    }
}

impl Models for ProviderRegistry {
    fn resolve(&self, reference: &str) -> Result<(Arc<dyn Model>, String), UnknownModel> {
        let found = reference.split_once('/').filter(|(_, model)| !model.trim().is_empty()).and_then(
            |(provider, model)| Some((Arc::clone(self.providers.get(provider)?), model.to_owned())),
        );
        found.ok_or_else(|| UnknownModel {
            reference: reference.to_owned(),
            configured: match self.names().collect::<Vec<_>>().join(", ") {
                none if none.is_empty() => "none".to_owned(),
                names => names,
            },
        })
    }

    fn providers(&self) -> Vec<ProviderModels> {
        let of = |name: &str| {
            let own = |reference: &&String| reference.split_once('/').is_some_and(|(of, _)| of == name);
            self.facts.keys().filter(own).cloned().collect()
        };
        self.names().map(|name| ProviderModels { name: name.to_owned(), models: of(name) }).collect()
    }

    fn facts(&self, reference: &str) -> ModelFacts {
        self.facts.get(reference).copied().unwrap_or_default()
    }

    fn prompt_template(&self, reference: &str) -> Option<&str> {
        let (provider, model) = reference.split_once('/')?;
        self.templates.get(provider)?.of(model)
    }
}

/// State shared by the providers while they are built.
struct Builder {
    http: Http,
    /// Open recordings, by file. Providers that record to the same file share a writer.
    recordings: BTreeMap<PathBuf, Arc<RecordingWriter>>,
}

impl Builder {
    fn build(&mut self, provider: &ProviderOptions) -> Result<Arc<dyn Model>, ProviderError> {
        let model = OutputLimited::wrap(connect(&self.http, provider)?, &provider.models);
        let Some(path) = &provider.record else { return Ok(model) };
        let recording = self.recording(path).map_err(ProviderError::Record)?;
        Ok(Arc::new(RecordingModel::new(&provider.name, model, recording)))
    }

    fn recording(&mut self, path: &Path) -> Result<Arc<RecordingWriter>, RecordingError> {
        if let Some(recording) = self.recordings.get(path) {
            return Ok(Arc::clone(recording));
        }
        let recording = Arc::new(RecordingWriter::open(path)?);
        self.recordings.insert(path.to_owned(), Arc::clone(&recording));
        Ok(recording)
    }
}

/// Creates the provider's own model, without output limit and recording.
fn connect(http: &Http, provider: &ProviderOptions) -> Result<Arc<dyn Model>, ProviderError> {
    let check_client = || {
        let client = http.client(ModelTimeouts::default().connect);
        client.map(|_| ()).map_err(|e| ProviderError::Client(e.to_string()))
    };
    Ok(match &provider.kind {
        ProviderKind::OpenAi(options) => {
            check_client()?;
            Arc::new(OpenAiModel::new(http.clone(), provider, options)?)
        }
        ProviderKind::Anthropic(options) => {
            check_client()?;
            Arc::new(AnthropicModel::new(http.clone(), provider, options)?)
        }
        ProviderKind::OpenAiResponses(options) => {
            check_client()?;
            Arc::new(ResponsesModel::new(http.clone(), provider, options)?)
        }
        ProviderKind::Gemini(options) => {
            check_client()?;
            Arc::new(GeminiModel::new(http.clone(), provider, options)?)
        }
        ProviderKind::Scripted(ScriptSource::File(path)) => Arc::new(ScriptedModel::new(Script::load(path)?)),
        ProviderKind::Scripted(ScriptSource::Text(text)) => {
            Arc::new(ScriptedModel::new(Script::parse(&provider.name, text)?))
        }
        ProviderKind::Replay(path) => Arc::new(ReplayModel::load(path)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::options::{AnthropicOptions, OpenAiOptions};
    use crate::secret::Secret;

    const SCRIPT: &str = "[[reply]]\ntext = \"hi\"";

    fn scripted(name: &str) -> ProviderOptions {
        ProviderOptions::new(name, ProviderKind::Scripted(ScriptSource::Text(SCRIPT.to_owned())))
    }

    fn registry(providers: Vec<ProviderOptions>) -> Result<ProviderRegistry, InvalidProvider> {
        ProviderRegistry::new(HttpOptions::default(), providers)
    }

    #[test]
    fn references_are_cut_at_the_first_slash() {
        let registry = registry(vec![
            scripted("demo"),
            ProviderOptions::new("openrouter", ProviderKind::OpenAi(OpenAiOptions::default())),
            ProviderOptions::new("anthropic", ProviderKind::Anthropic(AnthropicOptions::default())),
        ])
        .unwrap();
        for (reference, model) in [
            ("demo/any", "any"),
            ("openrouter/deepseek/deepseek-r1:free", "deepseek/deepseek-r1:free"),
            ("anthropic/claude-opus-5", "claude-opus-5"),
        ] {
            assert_eq!(registry.resolve(reference).map(|(_, model)| model), Ok(model.to_owned()));
        }
        for reference in ["", "demo", "demo/", "demo/ ", "/x", "other/x"] {
            let unknown = registry.resolve(reference).map(|(_, model)| model).unwrap_err();
            assert_eq!(unknown.configured, "anthropic, demo, openrouter");
            assert_eq!(unknown.reference, reference);
        }
        assert_eq!(ProviderRegistry::default().resolve("x/y").err().unwrap().configured, "none");
    }

    #[test]
    fn facts_belong_to_one_model_of_one_provider() {
        let facts = ModelFacts { context_window: Some(200_000), ..ModelFacts::default() };
        let mut demo = scripted("demo");
        demo.models.insert("org/a".to_owned(), facts);
        let registry = registry(vec![demo, scripted("other")]).unwrap();
        assert_eq!(registry.facts("demo/org/a"), facts);
        for unknown in ["demo/org", "other/org/a", "org/a", "demo", ""] {
            assert_eq!(registry.facts(unknown), ModelFacts::default(), "{unknown}");
        }
    }

    #[test]
    fn providers_are_listed_with_the_models_that_are_configured() {
        let mut demo = scripted("demo");
        for name in ["z", "org/a"] {
            demo.models.insert(name.to_owned(), ModelFacts::default());
        }
        let registry = registry(vec![scripted("demo-2"), demo]).unwrap();
        let listed = |name: &str, models: &[&str]| ProviderModels {
            name: name.to_owned(),
            models: models.iter().map(|&model| model.to_owned()).collect(),
        };
        assert_eq!(registry.providers(), [listed("demo", &["demo/org/a", "demo/z"]), listed("demo-2", &[])]);
        assert!(ProviderRegistry::default().providers().is_empty());
    }

    #[test]
    fn a_models_template_comes_before_its_providers() {
        let mut demo = scripted("demo");
        demo.templates.provider = Some("any: {{system_prompt}}".to_owned());
        demo.templates.models.insert("org/a".to_owned(), "a: {{system_prompt}}".to_owned());
        let registry = registry(vec![demo, scripted("other")]).unwrap();
        for (reference, template) in [
            ("demo/org/a", Some("a: {{system_prompt}}")),
            ("demo/org", Some("any: {{system_prompt}}")),
            ("other/org/a", None),
            ("demo", None),
        ] {
            assert_eq!(registry.prompt_template(reference), template, "{reference}");
        }
    }

    #[test]
    fn one_provider_is_one_model() {
        let registry = registry(vec![scripted("demo")]).unwrap();
        let model = |reference| registry.resolve(reference).unwrap().0;
        assert!(Arc::ptr_eq(&model("demo/a"), &model("demo/b")));
    }

    #[test]
    fn mistakes_name_the_provider() {
        let cause = |providers| registry(providers).map(|_| ()).map_err(|e| (e.name, e.cause));
        assert_eq!(cause(vec![scripted("a/b")]), Err(("a/b".to_owned(), ProviderError::Name)));
        assert_eq!(cause(vec![scripted("")]), Err((String::new(), ProviderError::Name)));
        assert_eq!(
            cause(vec![scripted("a"), scripted("a")]),
            Err(("a".to_owned(), ProviderError::Duplicate))
        );
        let kind = ProviderKind::OpenAi(OpenAiOptions::default());
        let mut provider = ProviderOptions::new("p", kind);
        provider.base_url = Some("localhost".to_owned());
        let error = registry(vec![provider.clone()]).unwrap_err();
        assert!(error.to_string().starts_with("provider \"p\": base_url: "), "{error}");
        provider.base_url = None;
        provider.api_key = Some(Secret::new("sk-12345\n6789"));
        let error = registry(vec![provider]).unwrap_err();
        assert_eq!(error.cause, ProviderError::Header("authorization".to_owned()));
        assert!(!format!("{error:?} {error}").contains("12345"));
        let script = ProviderKind::Scripted(ScriptSource::Text("x".to_owned()));
        let error = registry(vec![ProviderOptions::new("s", script)]).unwrap_err();
        assert!(error.to_string().starts_with("provider \"s\": script s: "), "{error}");
    }
}
