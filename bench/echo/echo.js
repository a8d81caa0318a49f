// SPDX-License-Identifier: GPL-2.0
// echo.js PORT: as echo.go, by Node.js.
'use strict';
const net = require('net');
const port = Number(process.argv[2]);

if (!port) {
	console.error('usage: node echo.js PORT');
	process.exit(2);
}
net.createServer({ noDelay: true }, (conn) => {
	conn.on('error', () => conn.destroy());
	conn.pipe(conn);
}).listen(port, '127.0.0.1', () => console.log('listening', port));
