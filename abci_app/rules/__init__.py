"""The rules, one module per area. `abci_app.rules.handlers.HANDLERS` names the handler of each message."""
