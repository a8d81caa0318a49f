module socksplice.test/gorelay

go 1.19
