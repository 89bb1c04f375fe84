"""Text that holds nothing sensitive, and looks as much like it as everyday text does."""

PROSE = """
The committee met on 14 March 2024 at 10:30 and adjourned at 12:45. Forty-two members attended.
Turnover rose from 1,234,567 to 2,345,678 over the year, or 89.9 per cent; costs fell by 3.2 %.
Please call the front desk on extension 4711, or write to the office at the usual address.
The secret of a good soup is patience, and the password to her heart was a well-made risotto.
My password is not something I would ever tell you, and neither is the token of my affection.
Reset your password:
ClickTheButtonBelow and follow the instructions on the screen.
The key to success is practice. The key: keep going. The answer was 42, as everybody knows.
Flight LH 1234 leaves gate B12 at 06:55 and reaches MUC at 08:05; seat 14C, group 3.
Room 2024 is on the second floor; take lift 4 or the stairs near entrance 51.
Our order numbers run from 5100000001 to 5100000999 this year. Yours is 5100000417.
Serial no. 4000-1234-5678, batch 2024-11-30/07, part 978-3-16-148410-0.
The article number on the box is 4006381333931, and on the other one 4012345678901.
Version 3.11.7 of the interpreter, 1.2.3-rc.4 of the library, kernel 6.1.0-28-amd64.
In chess, 1. e4 e5 2. Nf3 Nc6 3. Bb5 a6 is the Ruy Lopez; in go, the first move is often at 4-4.
He scored 4 6 4 2 6 6 7 5 points in eight rounds. The series 1 1 2 3 5 8 13 21 34 55 89 continues.
Pi is about 3.14159265358979323846 and e about 2.71828182845904523536.
The telescope saw 0.4532015112830366 of the light, and 0.5425233430109903 at night.
Coordinates: 48.137154, 11.576124. Population: 1 512 491. Postal codes 80331 to 81929.
Temperatures were -12.5, -3.25, 0.0, 4.75 and 18.125 degrees; humidity 41 42 43 44 45 46 47 48.
S3, EKS, EC2 and C4 are fine, and so is K8s; so are H2O, CO2 and R2D2.
Ask at the desk for Anna (tokens for the laundry cost 2 euros; a token gesture costs nothing).
The meeting starts @ noon. See you there. Prices: 3 @ 4.50 each, 12 @ 3.99.
Follow us at @conductor or read the notes; @maria and @paolo reviewed them.
The token count was 12345678 and the limit 40000000; secretaries were asked to keep an eye on it.
It cost EUR 1.234,56 in Berlin, CHF 1'234.55 in Bern and GBP 1,234.56 in Bath.
Section 4.1.1.1 refers to 4.1.1.2 and to annex DE-12; figure GB-7 is on page 82.
Signed in Rome on 2024-02-29T23:59:60Z, archived under 20240229235960, filed 1709251200000.
Bearer of this letter is Mr. Brown. The bearer certificates were lost in the fire of 1871.
Der Ausschuss tagte am 14. März 2024 von 10.30 bis 12.45 Uhr; 42 Mitglieder waren anwesend.
Das Passwort vergisst man leicht, den Schlüssel: selten. Die Straße ist 12 km lang.
Il comitato si è riunito il 14 marzo 2024; la parola d'ordine è: pazienza. Costa 1.234,56 €.
Le comité s'est réuni le 14 mars 2024 ; le mot de passe est connu de tous, hélas.
Комитет собрался 14 марта 2024 года; присутствовали 42 человека, решение 1234-5678 принято.
委員会は2024年3月14日に開催され、42名が出席した。番号は1234-5678です。
"""

RECORDS = """
550e8400-e29b-41d4-a716-446655440000 6ba7b810-9dad-11d1-80b4-00c04fd430c8
41111111-1111-4111-8111-111111111111 45320151-1283-4366-9000-123456789012
da39a3ee5e6b4b0d3255bfef95601890afd80709 e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b
sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
commit 4532015112830366ffabc0123456789abcdef012
1700000000000000 1700000000123456 1732959600000000000 1609459200000
4111111111111112 5500000000000005000 4532015112830367 378282246310006
00:1a:2b:3c:4d:5e fe80::1ff:fe23:4567:890a 192.168.0.1 10.0.0.0/8 2001:db8::8a2e:370:7334
DE89 3704 0044 0532 0130 01, GB00 WEST 1234 5698 7654 32, XX12 3456 7890 1234 5678
AKIA is a prefix; AKIASHORT is too short; akiaiosfodnn7example is in the wrong case
ghp_ and hf_ and npm_ and sk- are prefixes of tokens that hold thirty characters or more
task-0123456789abcdef0123456789abcdef desk-aaaaaaaaaaaaaaaaaaaaaaaa
logo@2x.png icon@3x.png getty@tty1.service conductor-worker@pocket.service user@1000.service
git@github.com:example/project.git npm install left-pad@1.3.0 @types/node@20.11.5
img src=data:image/png;base64,{payload} or data:text/plain;base64,SGVsbG8sIHdvcmxkIQ==
SGVsbG8sIHdvcmxkISBUaGlzIGlzIGp1c3QgYSBncmVldGluZy4= TG9yZW0gaXBzdW0gZG9sb3Igc2l0IGFtZXQ=
%7B%22city%22%3A%22Munich%22%7D &lt;b&gt;bold&lt;/b&gt; \\u00fcber \\x41
48656c6c6f2c20776f726c6421 48 65 6c 6c 6f 2c 20 77 6f 72 6c 64 21
2024-11-30 09:06:17,123 INFO worker=7 tokens=431 trace=4bf92f3577b34da6a3ce929d0e0e4736
1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30
0.123456789 1.23456789 2.3456789012 3.4567890123 4.5678901234 5.6789012345 6.789012345
M 10 80 C 40 10, 65 10, 95 80 S 150 150, 180 80 L 4111 1111 Z
"""

CODE = '''
import asyncio, base64, hashlib, os, re, secrets
from dataclasses import dataclass, field
from pathlib import Path

MAX_TOKENS = 4096
SECRET_NAME = "conductor-signing-key"
TOKEN_URL = "https://auth.example.com/oauth2/v2.0/token"
API_KEY_ENV = "OPENAI_API_KEY_2"
PRIVATE_KEY_PATH = "/etc/conductor/keys/permit_1.pem"
PASSWORD_PATTERN = re.compile(r"(?P<password>[^:@]{3,20})")
api_key = os.environ["OPENAI_API_KEY"]
token = secrets.token_urlsafe(32)
token = b64encode(raw)
password = getpass.getpass("Password: ")
secret = read_secret(config.secret_ref)
max_tokens: int = 1024
tokenizer = AutoTokenizer.from_pretrained("Qwen2.5-Coder-0.5B-Instruct")
token_count = len(tokens)
access_key_id = settings.aws.access_key_id
password_hash = hashlib.sha256(password.encode()).hexdigest()
auth_key=None, secret_key=None, api_key=api_key, password=self._password

@dataclass(frozen=True)
class Session:
    """A session; `token` is never logged."""

    user_id: str
    token: str = field(repr=False)
    expires_at: float = 0.0

    @property
    def expired(self) -> bool:
        return time.time() > self.expires_at

    @classmethod
    @functools.cache
    def load(cls, path: Path) -> "Session":
        return cls(**json.loads(path.read_text()))

async def fetch(url: str, *, token: str | None = None, timeout: float = 30.0) -> bytes:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with session.get(url, headers=headers, timeout=timeout) as response:
        response.raise_for_status()
        return await response.read()

def checksum(digits: str) -> int:
    total = 0
    for index, digit in enumerate(reversed(digits)):
        value = int(digit) * (2 if index % 2 else 1)
        total += value - 9 if value > 9 else value
    return total % 10

const token = localStorage.getItem("token");
const { apiKey, secretKey } = process.env;
fetch(`${BASE_URL}/v1/chat/completions`, { headers: { Authorization: `Bearer ${apiKey}` } });
if (password.length < 8) { throw new Error("password: at least 8 characters"); }
export const secretsManager = new SecretsManagerClient({ region: "eu-central-1" });

env:
  - name: DB_PASSWORD
    valueFrom: { secretKeyRef: { name: db-credentials, key: password } }
  GITHUB_TOKEN: ${{ secrets.GITHUB_TOKEN }}
  password: "{{ vault_db_password }}"
  api_key: <your-api-key>
  secret: ********
  token: xxxxxxxxxxxxxxxx
  credentials_file: ./secrets/service_account_1.json
  key: env:OPENAI_API_KEY

SELECT id, name, token_count FROM runs WHERE created_at > '2024-01-01' AND secret IS NULL;
UPDATE users SET password_changed_at = now() WHERE id = 5105105105;
docker run --env-file .env -p 127.0.0.1:8080:8080 registry.example/conductor:1.4.2
curl -H "Authorization: Bearer $TOKEN" https://api.example.com/v1/models
psql "postgres://app:${DB_PASSWORD}@localhost:5432/app" -c "select 1"
ssh -i ~/.ssh/id_ed25519 deploy-host 'systemctl restart conductor-worker@pocket.service'
0x1f8b0800 0xdeadbeef 0x41414141 0b1010 1e10 6.02e23
'''

EVERYTHING = PROSE + RECORDS + CODE
