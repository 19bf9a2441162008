//! A pooler that has one session of a database for all of its connections, as far as a start of a server goes.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;

/// A message of PostgreSQL's protocol.
fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
    [&[kind], length.as_slice(), body].concat()
}

/// The response to a simple query.
fn response(query: &[u8]) -> Vec<u8> {
    if !query.windows(14).any(|part| part == b"pg_backend_pid") {
        return [message(b'C', b"BEGIN\0"), message(b'Z', b"T")].concat();
    }
    // One column of type int4 (23), as text, and a row of it.
    let column = b"\0\x01pid\0\0\0\0\0\0\0\0\0\0\x17\0\x04\xff\xff\xff\xff\0\0";
    let row = b"\0\x01\0\0\0\x024\x32";
    [message(b'T', column), message(b'D', row), message(b'C', b"SELECT 1\0"), message(b'Z', b"I")].concat()
}

async fn serve(mut client: TcpStream) -> std::io::Result<()> {
    let length = client.read_u32().await?;
    client.read_exact(&mut vec![0; length as usize - 4]).await?;
    client.write_all(&[message(b'R', &[0; 4]), message(b'Z', b"I")].concat()).await?;
    while client.read_u8().await? == b'Q' {
        let length = client.read_u32().await?;
        let mut query = vec![0; length as usize - 4];
        client.read_exact(&mut query).await?;
        client.write_all(&response(&query)).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_pooler_of_transactions_is_refused_before_anything_is_written() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(serve(client));
        }
    });
    let url = Secret::new(format!("postgres://ann@{at}/db?sslmode=disable"));
    let options = PostgresOptions { url, ..PostgresOptions::default() };
    let alone = PostgresStore::open(&options).await.err().unwrap();
    let me = ReplicaOptions {
        address: "127.0.0.1:1".to_owned(),
        lease: Duration::from_secs(2),
        configuration_digest: String::new(),
    };
    let replica = Replica::join(&options, me).await.err().unwrap();
    for refused in [alone, replica] {
        assert!(matches!(refused, OpenError::Pooled { .. }), "{refused}");
        assert!(refused.to_string().contains("pool_mode = session"), "{refused}");
    }
}

#[tokio::test]
async fn the_sessions_of_a_database_are_not_shared() {
    let Some(schema) = Schema::new().await else { return };
    let options = schema.options.url.expose().parse().unwrap();
    assert!(!super::connect::pooler::shares_sessions(&mut schema.shell().await, &options).await.unwrap());
}
