//! A real server in a child process, with a scripted model.

use std::{fs, net::TcpListener, path::PathBuf};

use tempfile::TempDir;

use crate::process::{Running, agentloop};

const SCRIPT: &str = r#"
[[reply]]
when = { user_contains = "mail", step = 0 }
reasoning = "Mails need leave."
text = "I will send it."
tool_calls = [{ name = "send_email", arguments = { to = "wrong@example.com", subject = "Hello", body = "b" } }]

[[reply]]
when = { user_contains = "mail", step = 1 }
text = "Done, it says: {{result}}"

[[reply]]
when = { user_contains = "letters", step = 0 }
tool_calls = [{ name = "send_email", arguments = { to = "ann@example.com", subject = "Hello", body = "b" } }]

[[reply]]
when = { user_contains = "letters", step = 1 }
tool_calls = [{ name = "send_email", arguments = { to = "bob@example.com", subject = "Hello", body = "b" } }]

[[reply]]
when = { user_contains = "letters", step = 2 }
text = "Both letters are sent."

[[reply]]
when = { user_contains = "two cards", step = 0 }
tool_calls = [{ name = "send_email", arguments = { to = "ann@example.com", subject = "Hello", body = "b" } }, { name = "send_email", arguments = { to = "bob@example.com", subject = "Hello", body = "b" } }]

[[reply]]
when = { user_contains = "two cards", step = 1 }
text = "Both cards are sent."

[[reply]]
when = { user_contains = "which town", step = 0 }
tool_calls = [{ name = "ask_human", arguments = { question = "Which town?" } }]

[[reply]]
when = { user_contains = "which person", step = 0 }
tool_calls = [{ name = "ask_human", arguments = { question = "Who is it?", form = { type = "object", properties = { name = { type = "string", title = "Name" }, years = { type = "integer", minimum = 18 } }, required = ["name"] } } }]

[[reply]]
when = { user_contains = "which colour", step = 0 }
tool_calls = [{ name = "ask_human", arguments = { question = "Which colour?", options = ["red", "green", "blue"] } }]

[[reply]]
when = { user_contains = "which days", step = 0 }
tool_calls = [{ name = "ask_human", arguments = { question = "Which days?", options = ["Monday", "Tuesday", "Friday"], multiple = true } }]

[[reply]]
when = { user_contains = "which", step = 1 }
text = "So it is: {{result}}."

[[reply]]
when = { user_contains = "plan", step = 0 }
tool_calls = [{ name = "update_todos", arguments = { todos = [{ id = "1", content = "Book the ferry", status = "in_progress" }, { id = "2", content = "Pack", status = "pending", priority = "high" }] } }]

[[reply]]
when = { user_contains = "plan", step = 1 }
tool_calls = [{ name = "update_todos", arguments = { todos = [{ id = "1", content = "Book the ferry", status = "completed" }, { id = "2", content = "Pack", status = "in_progress", priority = "high" }] } }]

[[reply]]
when = { user_contains = "plan", step = 2 }
text = "Half of it is done."

[[reply]]
when = { user_contains = "weather", step = 0 }
tool_calls = [{ name = "get_weather", arguments = { city = "Bergen" } }]

[[reply]]
when = { user_contains = "weather", step = 1 }
text = "It is clear there."

[[reply]]
when = { user_contains = "hurry" }
text = "I hurry."

[[reply]]
when = { user_contains = "count" }
text = "one two three four five six seven eight nine ten eleven twelve and out"
delay_ms = 100

[[reply]]
when = { user_contains = "saga" }
text = "once upon a time there was a king who had a son who had a horse that had a saddle of gold and so on"
delay_ms = 500

[[reply]]
when = { user_contains = "endless" }
text = "begun and then nothing"
delay_ms = 20000

[[reply]]
when = { user_contains = "patience" }
error = { kind = "rate_limited", message = "slow down now", retry_after_ms = 50000 }

[[reply]]
when = { user_contains = "quota" }
error = { kind = "rate_limited", message = "The account may use 40000 tokens a minute and has used them all: wait, or raise its limit at the provider", retry_after_ms = 50000 }

[[reply]]
when = { user_contains = "hostile" }
text = "before \u001b]0;evil\u0007\u001b[?1049l\u001b[2J\u001b[H\u202eafter"

[[reply]]
when = { user_contains = "page" }
text = """
# A page

Some **bold**, *slanted* and `code`.

- one item that is longer than the screen is wide, so that it is broken and indented
- 北京：天气很好，我们去公园吧。北京：天气很好，我们去公园吧。

```diff
@@ -1,2 +1,2 @@
 same
-old
+new
```

| city | °C |
|------|---:|
| 北京 | 8 |
| Oslo | 12 |

> שלום עולם, זה טקסט שנכתב מימין לשמאל ונשבר לשורות
"""

[[reply]]
text = "You said: {{user}}"
"#;

/// A server process, which can be killed and started again with the same database.
pub(crate) struct Server {
    dir: TempDir,
    address: String,
    running: Option<Running>,
}

impl Server {
    pub(crate) async fn start() -> Server {
        let dir = tempfile::tempdir().expect("a directory");
        let free = TcpListener::bind("127.0.0.1:0").expect("a loopback port is free");
        let address = free.local_addr().expect("a bound socket has an address").to_string();
        drop(free);
        // A repository, so that instruction files above it are not used.
        fs::create_dir(dir.path().join(".git")).expect("made");
        fs::write(dir.path().join("script.toml"), SCRIPT).expect("written");
        let config = format!(
            "[server]\nlisten = \"{address}\"\n[store]\npath = \"agentloop.db\"\n\
             [providers.demo]\nkind = \"scripted\"\nfile = \"script.toml\"\n\
             [agents.default]\nmodel = \"demo/scripted\"\n\
             [agents.reviewer]\nmodel = \"demo/careful\"\ndescription = \"Reads twice\"\n\
             [agents.default.tool_policy]\nask_human = true\ntodos = true\n"
        );
        fs::write(dir.path().join("agentloop.toml"), config).expect("written");
        let mut server = Server { dir, address, running: None };
        server.start_again().await;
        server
    }

    pub(crate) async fn start_again(&mut self) {
        let config = self.file("agentloop.toml");
        let serve = agentloop("unused", &["serve", "--config", config.to_str().expect("text")]);
        self.running = Some(Running::start_and_wait_for(serve, "listens on").await);
    }

    pub(crate) async fn kill(&mut self) {
        let running = self.running.take().expect("it runs");
        running.signal("KILL").await;
        running.gone().await;
    }

    /// Starts a tool host that offers `send_email`.
    pub(crate) async fn host(&self) -> Running {
        let outbox = self.file("outbox");
        let host = ["host", "--host-id", "h-1", "--outbox", outbox.to_str().expect("text")];
        Running::start_and_wait_for(agentloop(&self.url(), &host), "connected").await
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}
