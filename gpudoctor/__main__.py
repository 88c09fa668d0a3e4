"""`python -m gpudoctor` is the same program as `gpudoctor`."""

from gpudoctor.cli.main import main

if __name__ == "__main__":
    main()
