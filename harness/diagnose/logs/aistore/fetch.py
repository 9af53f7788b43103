"""How to get the daemons' logs, for whoever has only the workers'."""


def fetch_commands() -> tuple[str, ...]:
    """Shell lines to paste, in order; what stands in <...> is to be filled in. Source: AIStore's CLI."""
    return (
        "command -v ais || "
        "(git clone https://github.com/NVIDIA/aistore && cd aistore/cmd/cli && go install .)"
        "  # or a released binary; else ask who runs the cluster",
        "export AIS_ENDPOINT=https://<endpoint>:<port>",
        "export AIS_AUTHN_TOKEN=<token>  # only if the cluster asks for one",
        "export AIS_SERVER_CRT=<path/to/ca.crt>  # or: ais config cli set cluster.skip_verify_crt=true",
        "ais log get cluster <folder of the workers' logs>/ais_logs",
        "cd <folder of the workers' logs>/ais_logs && for f in *.tar.gz; do "
        'mkdir -p "${f%.tar.gz}" && tar xzf "$f" -C "${f%.tar.gz}"; done',
    )
