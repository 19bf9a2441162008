//! Tokens that are signed in the test, and everything that may be wrong with them.

use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _};
use serde_json::json;

use super::*;

const NOW: Timestamp = Timestamp(1_700_000_000_000);

/// A private key, with its id.
struct Signer {
    id: &'static str,
    pair: EcdsaKeyPair,
}

impl Signer {
    fn new(id: &'static str) -> Self {
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key.as_ref(), &random).unwrap();
        Self { id, pair }
    }

    fn jwk(&self) -> Value {
        let point = self.pair.public_key().as_ref();
        let part = |from: usize| URL_SAFE_NO_PAD.encode(&point[from..from + 32]);
        json!({ "kty": "EC", "crv": "P-256", "kid": self.id, "x": part(1), "y": part(33) })
    }

    fn sign(&self, header: &Value, claims: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(header), part(claims));
        let signature = self.pair.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    fn token(&self, claims: &Value) -> String {
        self.sign(&json!({ "alg": "ES256", "kid": self.id }), claims)
    }
}

fn keys(of: &[&Signer]) -> Arc<KeySet> {
    let keys: Vec<Value> = of.iter().map(|signer| signer.jwk()).collect();
    Arc::new(KeySet::read(json!({ "keys": keys }).to_string().as_bytes()).unwrap())
}

fn check_with(signer: &Signer) -> JwtCheck {
    let check = JwtCheck::new(fuzz::rules());
    check.replace_keys(keys(&[signer]), Timestamp(u64::MAX));
    check
}

/// Right claims, with these in their place; `null` takes one away.
fn claims(more: &Value) -> Value {
    let now = NOW.0 / 1_000;
    let mut claims = json!({
        "iss": "https://issuer.example", "aud": "agentloop", "sub": "ada", "exp": now + 60,
        "org": { "id": "acme" }, "realm_access": { "roles": ["offline_access", "viewer", "caller"] },
        "groups": ["sre"],
    });
    for (name, value) in more.as_object().unwrap() {
        if value.is_null() {
            claims.as_object_mut().unwrap().remove(name);
        } else {
            claims[name] = value.clone();
        }
    }
    claims
}

#[test]
fn a_right_token_describes_its_principal() {
    let signer = Signer::new("1");
    let check = check_with(&signer);
    let ada = check.check(&signer.token(&claims(&json!({}))), NOW).ok().unwrap();
    assert_eq!((ada.principal.name.as_str(), ada.principal.tenant.as_str()), ("ada", "acme"));
    assert_eq!(ada.principal.roles, [Role::Caller, Role::Viewer]);
    assert_eq!(ada.principal.groups, ["sre"]);
    assert_eq!(ada.expires, Timestamp(NOW.0 + 120_000), "with the leeway");
    let bare = json!({ "realm_access": null, "groups": null, "aud": ["x", "agentloop"] });
    let bare = check.check(&signer.token(&claims(&bare)), NOW).ok().unwrap().principal;
    assert_eq!((bare.roles.len(), bare.groups.len()), (0, 0));
    let text = json!({ "realm_access": { "roles": "viewer openid" }, "sub": 7 });
    let text = check.check(&signer.token(&claims(&text)), NOW).ok().unwrap().principal;
    assert_eq!((text.name.as_str(), text.roles.as_slice()), ("7", &[Role::Viewer][..]));
    // Without the id of its key, every key that fits is tried.
    let nameless = signer.sign(&json!({ "alg": "ES256" }), &claims(&json!({})));
    assert!(check.check(&nameless, NOW).is_ok());
}

#[test]
fn a_token_without_a_tenant_belongs_to_the_default_one_or_proves_nobody() {
    let signer = Signer::new("1");
    let token = signer.token(&claims(&json!({ "org": null })));
    assert_eq!(check_with(&signer).check(&token, NOW).err(), Some(Rejection::BadClaims));
    let default_tenant = Some(TenantId::parse("guests").unwrap());
    let check = JwtCheck::new(JwtRules { default_tenant, ..fuzz::rules() });
    check.replace_keys(keys(&[&signer]), Timestamp(u64::MAX));
    assert_eq!(check.check(&token, NOW).ok().unwrap().principal.tenant.as_str(), "guests");
}

#[test]
fn a_token_with_anything_wrong_proves_nobody() {
    let (signer, other) = (Signer::new("1"), Signer::new("1"));
    let check = check_with(&signer);
    let now = NOW.0 / 1_000;
    let refused = |token: &str| check.check(token, NOW).err();
    for (more, rejection) in [
        (json!({ "iss": "https://issuer.example/" }), Rejection::WrongIssuer),
        (json!({ "iss": null }), Rejection::WrongIssuer),
        (json!({ "iss": ["https://issuer.example"] }), Rejection::WrongIssuer),
        (json!({ "aud": "another" }), Rejection::WrongAudience),
        (json!({ "aud": null }), Rejection::WrongAudience),
        (json!({ "aud": ["another", 7] }), Rejection::WrongAudience),
        (json!({ "exp": now - 60 }), Rejection::ExpiredToken),
        (json!({ "exp": null }), Rejection::BadClaims),
        (json!({ "exp": "tomorrow" }), Rejection::BadClaims),
        (json!({ "exp": -1 }), Rejection::BadClaims),
        (json!({ "nbf": now + 61 }), Rejection::NotYetValid),
        (json!({ "nbf": "now" }), Rejection::BadClaims),
        (json!({ "sub": null }), Rejection::BadClaims),
        (json!({ "sub": "" }), Rejection::BadName),
        (json!({ "sub": "a\nb" }), Rejection::BadName),
        (json!({ "sub": "ad\u{200b}a" }), Rejection::BadName),
        (json!({ "sub": "\u{430}da" }), Rejection::BadName),
        (json!({ "sub": "x".repeat(257) }), Rejection::BadName),
        (json!({ "sub": { "a": 1 } }), Rejection::BadClaims),
        (json!({ "org": { "id": "a b" } }), Rejection::BadClaims),
        (json!({ "org": { "id": "" } }), Rejection::BadClaims),
        (json!({ "org": { "id": ["acme"] } }), Rejection::BadClaims),
    ] {
        assert_eq!(refused(&signer.token(&claims(&more))), Some(rejection), "{more}");
    }
    for more in [json!({ "exp": now - 59 }), json!({ "nbf": now + 60 }), json!({ "exp": 1e300 })] {
        assert_eq!(refused(&signer.token(&claims(&more))), None, "{more}");
    }
    let good = claims(&json!({}));
    assert_eq!(refused(&other.token(&good)), Some(Rejection::BadSignature));
    assert_eq!(refused(&Signer::new("2").token(&good)), Some(Rejection::UnknownKey));
    let nameless = other.sign(&json!({ "alg": "ES256" }), &good);
    assert_eq!(refused(&nameless), Some(Rejection::UnknownKey), "its key may come");
    let critical = signer.sign(&json!({ "alg": "ES256", "kid": "1", "crit": ["b64"], "b64": false }), &good);
    assert_eq!(refused(&critical), Some(Rejection::MalformedToken));
    let text = signer.sign(&json!({ "alg": "ES256", "kid": "1" }), &json!("text"));
    assert_eq!(refused(&text), Some(Rejection::MalformedToken));
}

#[test]
fn no_algorithm_makes_a_public_key_a_secret() {
    let signer = Signer::new("1");
    let check = check_with(&signer);
    let good = signer.token(&claims(&json!({})));
    let (header, rest) = good.split_once('.').unwrap();
    let (payload, _) = rest.split_once('.').unwrap();
    // A careless library would take the public key for the secret, as text or as bytes.
    let jwk = signer.jwk().to_string();
    for secret in [jwk.as_bytes(), signer.pair.public_key().as_ref()] {
        for (name, algorithm) in [
            ("HS256", ring::hmac::HMAC_SHA256),
            ("HS384", ring::hmac::HMAC_SHA384),
            ("HS512", ring::hmac::HMAC_SHA512),
        ] {
            let header = URL_SAFE_NO_PAD.encode(json!({ "alg": name, "kid": "1" }).to_string());
            let signed = format!("{header}.{payload}");
            let tag = ring::hmac::sign(&ring::hmac::Key::new(algorithm, secret), signed.as_bytes());
            let token = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(tag));
            assert_eq!(check.check(&token, NOW).err(), Some(Rejection::WrongAlgorithm), "{name}");
        }
    }
    for name in ["none", "None", "NONE", "nOnE", ""] {
        let header = URL_SAFE_NO_PAD.encode(json!({ "alg": name, "kid": "1" }).to_string());
        for token in
            [format!("{header}.{payload}."), format!("{header}.{payload}"), format!("{header}.{payload}.x")]
        {
            assert_eq!(check.check(&token, NOW).err(), Some(Rejection::MalformedToken), "{name}");
        }
    }
    assert_eq!(check.check(&format!("{header}.{payload}."), NOW).err(), Some(Rejection::BadSignature));
    // An algorithm of another family than the key's.
    for name in ["RS256", "PS512", "ES384", "EdDSA"] {
        let token = signer.sign(&json!({ "alg": name, "kid": "1" }), &claims(&json!({})));
        assert_eq!(check.check(&token, NOW).err(), Some(Rejection::UnknownKey), "{name}");
    }
    // A key that comes with the token.
    let own = Signer::new("mine");
    let header = json!({ "alg": "ES256", "kid": "mine", "jwk": own.jwk(), "jku": "https://evil.example/k",
        "x5u": "https://evil.example/c" });
    let token = own.sign(&header, &claims(&json!({})));
    assert_eq!(check.check(&token, NOW).err(), Some(Rejection::UnknownKey));
}

#[test]
fn huge_and_deep_tokens_are_refused() {
    let signer = Signer::new("1");
    let check = check_with(&signer);
    let refused = |token: &str| check.check(token, NOW).err();
    let huge = signer.token(&claims(&json!({ "more": "x".repeat(TOKEN_BYTES_MAX) })));
    assert_eq!(refused(&huge), Some(Rejection::MalformedToken));
    // Deeper than a parser's stack, and small enough to be looked at; the signature is right.
    let deep = format!("{}{}", "[".repeat(4_000), "]".repeat(4_000));
    let header = URL_SAFE_NO_PAD.encode(json!({ "alg": "ES256", "kid": "1" }).to_string());
    let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(format!("{{\"deep\":{deep}}}")));
    let signature = signer.pair.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
    let token = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature));
    assert!(token.len() < TOKEN_BYTES_MAX);
    assert_eq!(refused(&token), Some(Rejection::MalformedToken));
    let header = URL_SAFE_NO_PAD.encode(format!("{{\"alg\":\"ES256\",\"more\":{deep}}}"));
    assert_eq!(refused(&format!("{header}.e30.x")), Some(Rejection::MalformedToken));
    for token in ["", ".", "..", "a.b.c", "...", "e30.e30.e30", "%.%.%", "a.b.c.d", "\u{0}.\u{0}.\u{0}"] {
        assert_eq!(refused(token), Some(Rejection::MalformedToken), "{token:?}");
    }
}

#[test]
fn keys_are_replaced_and_become_stale() {
    let (old, new) = (Signer::new("old"), Signer::new("new"));
    let check = check_with(&old);
    let asks = |signer: &Signer, now: Timestamp| check.check(&signer.token(&claims(&json!({}))), now).err();
    assert_eq!((asks(&old, NOW), asks(&new, NOW)), (None, Some(Rejection::UnknownKey)));
    check.replace_keys(keys(&[&old, &new]), Timestamp(NOW.0 + 1_000));
    assert_eq!((asks(&old, NOW), asks(&new, NOW)), (None, None));
    check.replace_keys(keys(&[&new]), Timestamp(NOW.0 + 1_000));
    assert_eq!((asks(&old, NOW), asks(&new, NOW)), (Some(Rejection::UnknownKey), None));
    assert_eq!(asks(&new, Timestamp(NOW.0 + 1_000)), Some(Rejection::UnknownKey), "they are too old");
    assert!(JwtCheck::new(fuzz::rules()).check("a.b.c", NOW).is_err());
}

#[test]
fn streams_look_again_only_when_the_keys_are_others() {
    let (old, new) = (Signer::new("old"), Signer::new("new"));
    let check = check_with(&old);
    let mut replaced = check.replaced.subscribe();
    let mut is_told_of = |set: Arc<KeySet>| {
        check.replace_keys(set, Timestamp(u64::MAX));
        let is_told = replaced.has_changed().unwrap();
        replaced.mark_unchanged();
        is_told
    };
    let told = [keys(&[&old]), keys(&[&old, &new]), keys(&[&old, &new]), keys(&[&new]), keys(&[])]
        .map(&mut is_told_of);
    assert_eq!(told, [false, true, false, true, true]);
}

#[test]
fn the_other_families_of_keys_check_signatures() {
    // Ed25519, with a key that is made here.
    let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
    let pair = Ed25519KeyPair::from_pkcs8(document.as_ref()).unwrap();
    let jwk =
        json!({ "kty": "OKP", "crv": "Ed25519", "kid": "e", "x": URL_SAFE_NO_PAD.encode(pair.public_key()) });
    let check = JwtCheck::new(fuzz::rules());
    let set = KeySet::read(json!({ "keys": [jwk] }).to_string().as_bytes()).unwrap();
    check.replace_keys(Arc::new(set), Timestamp(u64::MAX));
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", part(&json!({ "alg": "EdDSA", "kid": "e" })), part(&claims(&json!({}))));
    let token = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(pair.sign(signed.as_bytes())));
    assert!(check.check(&token, NOW).is_ok());
    assert!(check.check(&format!("{signed}.{}", URL_SAFE_NO_PAD.encode([0; 64])), NOW).is_err());
    // RSA: the token of RFC 7515, appendix A.2, whose claims are for somebody else.
    let jwk = json!({ "kty": "RSA", "e": "AQAB", "n": "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ" });
    let token = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw";
    let set = KeySet::read(json!({ "keys": [jwk] }).to_string().as_bytes()).unwrap();
    check.replace_keys(Arc::new(set), Timestamp(u64::MAX));
    assert_eq!(check.check(token, NOW).err(), Some(Rejection::WrongIssuer), "the signature is right");
    let wrong = token.replace("cC4hiUPo", "dC4hiUPo");
    assert_eq!(check.check(&wrong, NOW).err(), Some(Rejection::UnknownKey));
}

#[test]
fn a_path_finds_claims_within_others_and_names_with_dots() {
    let found = |path: &str, claims: Value| {
        let claims = claims.as_object().cloned().unwrap();
        ClaimPath::parse(path).unwrap().find(&claims).cloned()
    };
    assert_eq!(found("a", json!({ "a": 1 })), Some(json!(1)));
    assert_eq!(found("a.b.c", json!({ "a": { "b": { "c": 1 } } })), Some(json!(1)));
    assert_eq!(found("https://x.example/roles", json!({ "https://x.example/roles": 1 })), Some(json!(1)));
    assert_eq!(found("a.b.c", json!({ "a.b": { "c": 1 }, "a": { "b": { "c": 2 } } })), Some(json!(1)));
    assert_eq!(found("a.b", json!({ "a": 1 })), None);
    assert_eq!(found("a.b", json!({ "a": [{ "b": 1 }] })), None);
    for path in ["", ".", "a.", ".a", &"a.".repeat(9), &"x".repeat(257)] {
        assert!(ClaimPath::parse(path).is_err(), "{path}");
    }
}
