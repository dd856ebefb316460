//! TLS and SASL.

use crate::config::key::Allowed::{Any, AnyList, Between, OneOf, OneOfIgnoringCase};
use crate::config::key::keys;

keys! { KEYS:
    "connections.max.reauth.ms" Long = Some("0"), Any, ReadOnly, Inert,
        "Life of a SASL session before it must authenticate again; 0 for no bound.";
    "sasl.server.max.receive.size" Int = Some("524288"), Any, ReadOnly, Inert,
        "Largest SASL message before a client is authenticated.";
    "security.providers" String = None, Any, ReadOnly, Inert,
        "Java security providers.";
    "principal.builder.class" Class = Some("org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"), Any, PerBroker, Inert,
        "Builder of principals from connections.";
    "ssl.client.auth" String = Some("none"), OneOf(&["required", "requested", "none"]), PerBroker, Inert,
        "Whether clients must show a certificate.";
    "ssl.principal.mapping.rules" String = Some("DEFAULT"), Any, ReadOnly, Inert,
        "Rules that turn a certificate's name into a principal.";
    "ssl.allow.dn.changes" Boolean = Some("false"), Any, ReadOnly, Inert,
        "Whether a reloaded certificate may change its distinguished name.";
    "ssl.allow.san.changes" Boolean = Some("false"), Any, ReadOnly, Inert,
        "Whether a reloaded certificate may change its alternative names.";
    "ssl.protocol" String = Some("TLSv1.3"), Any, PerBroker, Inert,
        "TLS version preferred.";
    "ssl.provider" String = None, Any, PerBroker, Inert,
        "Java TLS provider.";
    "ssl.enabled.protocols" List = Some("TLSv1.2,TLSv1.3"), AnyList, PerBroker, Inert,
        "TLS versions allowed.";
    "ssl.keystore.type" String = Some("JKS"), Any, PerBroker, Inert,
        "Format of the key store.";
    "ssl.keystore.location" String = None, Any, PerBroker, Inert,
        "File of the key store.";
    "ssl.keystore.password" Password = None, Any, PerBroker, Inert,
        "Password of the key store.";
    "ssl.key.password" Password = None, Any, PerBroker, Inert,
        "Password of the private key.";
    "ssl.keystore.key" Password = None, Any, PerBroker, Inert,
        "Private key as PEM text.";
    "ssl.keystore.certificate.chain" Password = None, Any, PerBroker, Inert,
        "Certificate chain as PEM text.";
    "ssl.truststore.type" String = Some("JKS"), Any, PerBroker, Inert,
        "Format of the trust store.";
    "ssl.truststore.location" String = None, Any, PerBroker, Inert,
        "File of the trust store.";
    "ssl.truststore.password" Password = None, Any, PerBroker, Inert,
        "Password of the trust store.";
    "ssl.truststore.certificates" Password = None, Any, PerBroker, Inert,
        "Trusted certificates as PEM text.";
    "ssl.keymanager.algorithm" String = Some("SunX509"), Any, PerBroker, Inert,
        "Java key manager algorithm.";
    "ssl.trustmanager.algorithm" String = Some("PKIX"), Any, PerBroker, Inert,
        "Java trust manager algorithm.";
    "ssl.endpoint.identification.algorithm" String = Some("https"), Any, PerBroker, Inert,
        "How a server's name is checked against its certificate.";
    "ssl.secure.random.implementation" String = None, Any, PerBroker, Inert,
        "Java random number generator for TLS.";
    "ssl.cipher.suites" List = Some(""), AnyList, PerBroker, Inert,
        "Cipher suites allowed; empty for all safe ones.";
    "ssl.engine.factory.class" Class = None, Any, PerBroker, Inert,
        "Plug-in that makes TLS engines.";
    "sasl.mechanism.inter.broker.protocol" String = Some("GSSAPI"), Any, PerBroker, Inert,
        "SASL mechanism between brokers.";
    "sasl.enabled.mechanisms" List = Some("GSSAPI"), AnyList, PerBroker, Inert,
        "SASL mechanisms offered to clients.";
    "sasl.server.callback.handler.class" Class = None, Any, ReadOnly, Inert,
        "Server callback plug-in of a SASL mechanism.";
    "sasl.kerberos.principal.to.local.rules" List = Some("DEFAULT"), AnyList, PerBroker, Inert,
        "Rules that turn a Kerberos principal into a short name.";
    "sasl.jaas.config" Password = None, Any, PerBroker, Inert,
        "Login settings in JAAS form.";
    "sasl.client.callback.handler.class" Class = None, Any, ReadOnly, Inert,
        "Client callback plug-in of a SASL mechanism.";
    "sasl.login.class" Class = None, Any, ReadOnly, Inert,
        "Login plug-in of a SASL mechanism.";
    "sasl.login.callback.handler.class" Class = None, Any, ReadOnly, Inert,
        "Login callback plug-in of a SASL mechanism.";
    "sasl.kerberos.service.name" String = None, Any, PerBroker, Inert,
        "Kerberos service name of the broker.";
    "sasl.kerberos.kinit.cmd" String = Some("/usr/bin/kinit"), Any, PerBroker, Inert,
        "Path of kinit.";
    "sasl.kerberos.ticket.renew.window.factor" Double = Some("0.8"), Any, PerBroker, Inert,
        "Share of a ticket's life after which it is renewed.";
    "sasl.kerberos.ticket.renew.jitter" Double = Some("0.05"), Any, PerBroker, Inert,
        "Random share added to the renewal time.";
    "sasl.kerberos.min.time.before.relogin" Long = Some("60000"), Any, PerBroker, Inert,
        "Least time between Kerberos logins.";
    "sasl.login.refresh.window.factor" Double = Some("0.8"), Any, PerBroker, Inert,
        "Share of a token's life after which it is refreshed.";
    "sasl.login.refresh.window.jitter" Double = Some("0.05"), Any, PerBroker, Inert,
        "Random share added to the refresh time.";
    "sasl.login.refresh.min.period.seconds" Short = Some("60"), Any, PerBroker, Inert,
        "Least time between token refreshes.";
    "sasl.login.refresh.buffer.seconds" Short = Some("300"), Any, PerBroker, Inert,
        "Time before a token's end by which it is refreshed.";
    "sasl.login.connect.timeout.ms" Int = None, Any, ReadOnly, Inert,
        "Connection timeout to the token provider.";
    "sasl.login.read.timeout.ms" Int = None, Any, ReadOnly, Inert,
        "Read timeout of the token provider.";
    "sasl.login.retry.backoff.max.ms" Long = Some("10000"), Any, ReadOnly, Inert,
        "Longest wait between attempts to get a token.";
    "sasl.login.retry.backoff.ms" Long = Some("100"), Any, ReadOnly, Inert,
        "First wait between attempts to get a token.";
    "sasl.oauthbearer.jwt.retriever.class" Class = Some("org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever"), Any, ReadOnly, Inert,
        "Plug-in that fetches tokens.";
    "sasl.oauthbearer.jwt.validator.class" Class = Some("org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator"), Any, ReadOnly, Inert,
        "Plug-in that checks tokens.";
    "sasl.oauthbearer.scope" String = None, Any, ReadOnly, Inert,
        "Scope asked for with client credentials.";
    "sasl.oauthbearer.client.credentials.client.id" String = None, Any, ReadOnly, Inert,
        "Client id of the client credentials grant.";
    "sasl.oauthbearer.client.credentials.client.secret" Password = None, Any, ReadOnly, Inert,
        "Client secret of the client credentials grant.";
    "sasl.oauthbearer.assertion.algorithm" String = Some("RS256"), OneOfIgnoringCase(&["ES256", "RS256"]), ReadOnly, Inert,
        "Signature algorithm of client assertions.";
    "sasl.oauthbearer.assertion.claim.aud" String = None, Any, ReadOnly, Inert,
        "Audience of client assertions.";
    "sasl.oauthbearer.assertion.claim.exp.seconds" Int = Some("300"), Between(0, 86400), ReadOnly, Inert,
        "Life of client assertions.";
    "sasl.oauthbearer.assertion.claim.iss" String = None, Any, ReadOnly, Inert,
        "Issuer of client assertions.";
    "sasl.oauthbearer.assertion.claim.jti.include" Boolean = Some("false"), Any, ReadOnly, Inert,
        "Whether client assertions carry an id.";
    "sasl.oauthbearer.assertion.claim.nbf.seconds" Int = Some("60"), Between(0, 3600), ReadOnly, Inert,
        "How long before now client assertions become valid.";
    "sasl.oauthbearer.assertion.claim.sub" String = None, Any, ReadOnly, Inert,
        "Subject of client assertions.";
    "sasl.oauthbearer.assertion.file" String = None, Any, ReadOnly, Inert,
        "File with a ready client assertion.";
    "sasl.oauthbearer.assertion.private.key.file" String = None, Any, ReadOnly, Inert,
        "Private key that signs client assertions.";
    "sasl.oauthbearer.assertion.private.key.passphrase" Password = None, Any, ReadOnly, Inert,
        "Passphrase of that private key.";
    "sasl.oauthbearer.assertion.template.file" String = None, Any, ReadOnly, Inert,
        "Template of client assertions.";
    "sasl.oauthbearer.scope.claim.name" String = Some("scope"), Any, ReadOnly, Inert,
        "Claim that holds the scope.";
    "sasl.oauthbearer.sub.claim.name" String = Some("sub"), Any, ReadOnly, Inert,
        "Claim that holds the subject.";
    "sasl.oauthbearer.token.endpoint.url" String = None, Any, ReadOnly, Inert,
        "Address of the token endpoint.";
    "sasl.oauthbearer.jwks.endpoint.url" String = None, Any, ReadOnly, Inert,
        "Address of the keys tokens are checked with.";
    "sasl.oauthbearer.jwks.endpoint.refresh.ms" Long = Some("3600000"), Any, ReadOnly, Inert,
        "Time between refreshes of those keys.";
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms" Long = Some("100"), Any, ReadOnly, Inert,
        "First wait after a failed refresh of the keys.";
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms" Long = Some("10000"), Any, ReadOnly, Inert,
        "Longest wait after failed refreshes of the keys.";
    "sasl.oauthbearer.clock.skew.seconds" Int = Some("30"), Any, ReadOnly, Inert,
        "Clock difference tolerated when tokens are checked.";
    "sasl.oauthbearer.allow.unverified.audience" Boolean = Some("false"), Any, ReadOnly, Inert,
        "Whether tokens are accepted without a check of their audience.";
    "sasl.oauthbearer.expected.audience" List = Some(""), AnyList, ReadOnly, Inert,
        "Audiences a token must name one of.";
    "sasl.oauthbearer.allow.unverified.issuer" Boolean = Some("false"), Any, ReadOnly, Inert,
        "Whether tokens are accepted without a check of their issuer.";
    "sasl.oauthbearer.expected.issuer" String = None, Any, ReadOnly, Inert,
        "Issuer a token must name.";
}
