module batchval.example/conformance-claims

go 1.26.0
