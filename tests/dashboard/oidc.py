"""An OpenID Connect provider on loopback that knows one person and asks for no password."""

import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT_ID, CLIENT_SECRET = "traceq-dashboard", "a secret of the client"
EMAIL = "engineer@cluster.example"
_KEY = RSAKey.generate_key(2048, {"kid": "1"})


@contextmanager
def provider() -> Iterator[str]:
    """Yields: the address of a provider's metadata."""
    nonces: dict[str, str] = {}

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            asked = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(asked.query).items()}
            match asked.path:
                case "/.well-known/openid-configuration":
                    self.answer(metadata)
                case "/keys":
                    self.answer({"keys": [_KEY.as_dict(private=False)]})
                case "/authorize" if query["client_id"] == CLIENT_ID:
                    code = secrets.token_hex(8)
                    nonces[code] = query["nonce"]
                    back = urlencode({"code": code, "state": query["state"]})
                    self.send_response(302)
                    self.send_header("Location", f"{query['redirect_uri']}?{back}")
                    self.end_headers()
                case _:
                    self.send_error(404)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            code = parse_qs(body)["code"][0]
            claims = {
                "iss": issuer, "sub": "1", "aud": CLIENT_ID, "email": EMAIL, "nonce": nonces[code],
                "iat": int(time.time()), "exp": int(time.time()) + 600,
            }  # fmt: skip
            token = jwt.encode({"alg": "RS256", "kid": "1"}, claims, _KEY)
            self.answer({"access_token": "a", "token_type": "Bearer", "id_token": token})

        def answer(self, value: object) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(value).encode())

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        issuer = f"http://127.0.0.1:{server.server_port}"
        metadata = {
            "issuer": issuer,
            "authorization_endpoint": f"{issuer}/authorize",
            "token_endpoint": f"{issuer}/token",
            "jwks_uri": f"{issuer}/keys",
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
        }
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"{issuer}/.well-known/openid-configuration"
        finally:
            server.shutdown()
