"""Shapes of the credentials that vendors issue, as the vendors publish them. Data alone.

`TOKENS` begin with something nothing else begins with. `BOUNDED` need something that is no letter
or digit before them: `task-` ends in `sk-`, and 16 MB of base64 hold `AIza` once by chance. `INNER`
are told by what stands in their middle: a gate for that, then the whole.
"""

from __future__ import annotations

TOKENS = (
    # forges
    r"gh[pousr]_[A-Za-z0-9]{36}",  # GitHub
    r"github_pat_[A-Za-z0-9_]{22,}",
    r"gl(?:pat|dt|rt|cbt|ptt|ft|soat|imt|agent|oas|ffct)-[A-Za-z0-9_\-]{20,}",  # GitLab
    r"GR1348941[A-Za-z0-9_\-]{20}",
    r"ATATT3[A-Za-z0-9_\-=]{60,}",  # Atlassian
    # chat
    r"xox[abeoprs]-[A-Za-z0-9\-]{10,}",  # Slack
    r"xapp-[0-9]-[A-Za-z0-9\-]{20,}",
    r"hooks\.slack\.com/(?:services|workflows)/[A-Za-z0-9/]{30,}",
    r"discord(?:app)?\.com/api/webhooks/[0-9]{16,}/[A-Za-z0-9_\-]{40,}",
    r"webhook\.office\.com/webhookb2/[a-z0-9\-]{36}@",
    # payment
    r"(?:sk|rk)_(?:live|test|prod)_[A-Za-z0-9]{10,}",  # Stripe
    r"whsec_[A-Za-z0-9+/]{24,}",
    r"sq0(?:atp|csp|idp)-[A-Za-z0-9_\-]{22,}",  # Square
    r"EAAA[lE][A-Za-z0-9_\-]{56,}",
    r"shp(?:at|ca|pa|ss)_[A-Fa-f0-9]{32}",  # Shopify
    r"access_token\$(?:production|sandbox)\$[a-z0-9]{16}\$[a-f0-9]{32}",  # PayPal
    r"rzp_(?:live|test)_[A-Za-z0-9]{14}",  # Razorpay
    r"FLWSECK(?:_TEST)?-[A-Za-z0-9]{12,}",  # Flutterwave
    r"access-(?:sandbox|development|production)-[0-9a-f]{8}-[0-9a-f\-]{27}",  # Plaid
    # model vendors and hubs
    r"sk-(?:proj|svcacct|admin|ant|or|lf)-[A-Za-z0-9_\-]{20,}",
    r"sk-[A-Za-z0-9]{20}T3BlbkFJ[A-Za-z0-9]{20}",
    r"gsk_[A-Za-z0-9]{40,}",
    r"xai-[A-Za-z0-9]{60,}",
    r"r8_[A-Za-z0-9]{37}",
    r"pplx-[A-Za-z0-9]{40,}",
    r"nvapi-[A-Za-z0-9_\-]{40,}",
    r"hf_[A-Za-z0-9]{30,}",
    r"api_org_[A-Za-z0-9]{34}",
    r"lsv2_(?:pt|sk)_[a-f0-9]{32}_[a-f0-9]{10}",
    # clouds and what runs on them
    r"ya29\.[A-Za-z0-9_\-]{20,}",  # Google
    r"GOCSPX-[A-Za-z0-9_\-]{28}",
    r"AccountKey=[A-Za-z0-9+/]{86}==",  # Azure
    r"SharedAccessKey=[A-Za-z0-9+/]{43}=",
    r"[?&]sig=[A-Za-z0-9%+/]{40,}",
    r"do[opr]_v1_[a-f0-9]{64}",  # DigitalOcean
    r"LTAI5t[A-Za-z0-9]{18}",  # Alibaba
    r"HRKU-[A-Za-z0-9_\-]{36,}",  # Heroku
    r"dapi[a-f0-9]{32}",  # Databricks
    r"FlyV1 fm[12][ar]?_[A-Za-z0-9+/=,_\-]{60,}",
    r"sbp_[a-f0-9]{40}",  # Supabase
    r"pscale_(?:tkn|pw|oauth)_[A-Za-z0-9_\-.=]{32,}",  # PlanetScale
    r"nfp_[A-Za-z0-9]{36}",  # Netlify
    r"sha256~[A-Za-z0-9_\-]{43}",  # OpenShift
    r"hv[sbr]\.[A-Za-z0-9_\-]{24,}",  # Vault
    r"pul-[a-f0-9]{40}",  # Pulumi
    r"dp\.(?:pt|st|ct|sa|scim|audit)\.[A-Za-z0-9.\-_]{40,}",  # Doppler
    r"ops_eyJ[A-Za-z0-9+/=]{60,}",  # 1Password
    r"tskey-[a-z]+-[A-Za-z0-9]{8,}-[A-Za-z0-9]{16,}",  # Tailscale
    # registries
    r"npm_[A-Za-z0-9]{36}",
    r"pypi-AgE[A-Za-z0-9_\-]{40,}",
    r"dckr_[po]at_[A-Za-z0-9_\-]{20,}",
    r"rubygems_[a-f0-9]{48}",
    r"oy2[a-z0-9]{43}",  # NuGet
    r"CLOJARS_[a-z0-9]{60}",
    # what watches, mails and builds
    r"gl(?:sa|c)_[A-Za-z0-9+/]{32,}",  # Grafana
    r"sntry[su]_[A-Za-z0-9+/=_]{40,}",  # Sentry
    r"NRAK-[A-Z0-9]{27}",  # New Relic
    r"dt0[a-z][0-9]{2}\.[A-Z0-9]{24}\.[A-Z0-9]{64}",  # Dynatrace
    r"sq[uap]_[a-f0-9]{40}",  # SonarQube
    r"SG\.[A-Za-z0-9_\-]{16,32}\.[A-Za-z0-9_\-]{16,64}",  # SendGrid
    r"xkeysib-[a-f0-9]{64}-[A-Za-z0-9]{16}",  # Brevo
    r"PMAK-[a-f0-9]{24}-[a-f0-9]{34}",  # Postman
    r"lin_api_[A-Za-z0-9]{40}",  # Linear
    r"ntn_[0-9]{11}[A-Za-z0-9]{35}",  # Notion
    r"secret_[A-Za-z0-9]{43}",
    r"figd_[A-Za-z0-9_\-]{38,}",  # Figma
    r"CFPAT-[A-Za-z0-9_\-]{43}",  # Contentful
    r"tfp_[A-Za-z0-9_\-.=]{59}",  # Typeform
    r"shippo_(?:live|test)_[a-f0-9]{40}",
    r"sl\.[A-Za-z0-9_\-]{130,}",  # Dropbox
    r"(?:pk|sk|tk)\.eyJ1[A-Za-z0-9_\-]{40,}",  # Mapbox
    r"rdme_[a-z0-9]{70}",
    r"pnu_[A-Za-z0-9]{36}",  # Prefect
    r"eyJ[A-Za-z0-9_\-]{10,}\.eyJ[A-Za-z0-9_\-]{10,}",  # JSON Web Token, RFC 7519
)

BOUNDED = (
    r"AIza[A-Za-z0-9_\-]{35}",  # Google
    r"sk-[A-Za-z0-9_\-]{20,200}",
    r"SK[0-9a-f]{32}",  # Twilio
    r"key-[0-9a-f]{32}",  # Mailgun
    r"[0-9a-f]{32}-us[0-9]{1,2}",  # Mailchimp
    r"AKID[A-Za-z0-9]{32}",  # Tencent
    r"AQVN[A-Za-z0-9_\-]{35,38}",  # Yandex
    r"ATBB[A-Za-z0-9]{32}",  # Atlassian
    r"EZ[AT]K[A-Za-z0-9]{54}",  # EasyPost
    r"AKCp[A-Za-z0-9]{69}",  # Artifactory
    r"fw_[A-Za-z0-9]{24}",  # Fireworks
    r"y0_[A-Za-z0-9_\-]{55,60}",  # Yandex
)

INNER = (
    (r"[0-9]:AA[A-Za-z0-9_\-]{4}", r"[0-9]{8,10}:AA[A-Za-z0-9_\-]{33}"),  # Telegram
    (
        r"\.[A-Za-z0-9_\-]{6}\.[A-Za-z0-9_\-]{4}",  # Discord
        r"[MNO][A-Za-z0-9_\-]{23,25}\.[A-Za-z0-9_\-]{6}\.[A-Za-z0-9_\-]{27,38}",
    ),
    (r"[0-9]Q~", r"[A-Za-z0-9_~.]{3}[0-9]Q~[A-Za-z0-9_~.\-]{31,34}"),  # Entra ID
    (r"\.atlasv1\.", r"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_\-=]{60,}"),  # Terraform
    (r"pat[A-Za-z0-9]{14}\.[a-f0-9]", r"pat[A-Za-z0-9]{14}\.[a-f0-9]{64}"),  # Airtable
)
