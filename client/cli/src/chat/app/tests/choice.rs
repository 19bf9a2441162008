//! The choice of a model.

use super::*;

/// A chat with a server that has these providers, each with its models.
fn with_providers(providers: &[(&str, &str)]) -> App {
    let mut app = chat();
    let provider = |(name, models): &(&str, &str)| ModelProvider {
        name: (*name).to_owned(),
        models: models.split_whitespace().map(str::to_owned).collect(),
    };
    app.handle(Event::Providers(providers.iter().map(provider).collect()));
    app
}

fn hint_after(app: &mut App, typed: &str) -> Option<String> {
    assert_eq!(send(app, typed), []);
    app.hint.clone()
}

#[test]
fn a_model_that_nobody_serves_is_refused_with_what_there_is() {
    let mut app = with_providers(&[("anthropic", ""), ("openai", "openai/gpt-5")]);
    let refused = hint_after(&mut app, "/model gpt/x").expect("a hint");
    assert_eq!(refused, "no provider serves gpt/x; there are: anthropic/… openai/…");
    assert_eq!((app.options.input.model.as_deref(), app.editor.text()), (None, "/model gpt/x".into()));
    app.editor.set("");
    assert_eq!(
        hint_after(&mut app, "/model openai/"),
        Some("a model is named PROVIDER/MODEL, not openai/".into())
    );
    app.editor.set("");
    assert_eq!(hint_after(&mut app, "/model openai/of-tomorrow"), None, "a provider may serve any name");
    assert_eq!(app.options.input.model.as_deref(), Some("openai/of-tomorrow"));
}

#[test]
fn a_server_that_lists_no_providers_decides_itself() {
    let mut app = with_providers(&[]);
    assert_eq!(hint_after(&mut app, "/model gpt/x"), None);
    assert_eq!(app.options.input.model.as_deref(), Some("gpt/x"));
}

#[test]
fn the_models_that_can_be_chosen_are_listed() {
    let mut app = with_providers(&[("demo", "demo/fast"), ("local", "")]);
    let agent = Agent { name: "helper".into(), model: "demo/careful".into(), ..Agent::default() };
    app.handle(Event::Agents(Ok(vec![agent])));
    assert_eq!(send(&mut app, "/model"), [Command::ListAgents, Command::ListProviders]);
    let names: Vec<_> = app.choices(Chosen::Model).into_iter().map(|row| row.name).collect();
    assert_eq!(names, ["", "demo/careful", "demo/fast", "demo/", "local/"]);
    // If a provider has no list, the name of the model is typed.
    press(&mut app, KeyCode::Up);
    press(&mut app, KeyCode::Enter);
    assert_eq!((app.editor.text(), app.overlay.is_none()), ("/model local/".into(), true));
    write(&mut app, "llama");
    press(&mut app, KeyCode::Enter);
    assert_eq!(app.options.input.model.as_deref(), Some("local/llama"));
}
