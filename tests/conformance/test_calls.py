"""Texts of calls, read as what they do."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.calls import MAX_CALL_CHARS, read_call
from tests.support.tables import for_each
from world.errors import RefusedError
from world.klis.observation import Declaration, Seen
from world.klis.predicate import Predicate
from world.klis.resources.names import NameComparison
from world.klis.resources.resource_reading import canonical_resource
from world.klis.triple import Triple


def told(text: str, **known: Any) -> list[str]:
    """Return what a call does, as lines; what is only assumed of an opaque tool ends in a question mark."""
    return [
        f"{seen.predicate} {seen.resource.text}{'?' if seen.opaque_of else ''}" for seen in read_call(text, **known)
    ]


NODE = {
    "fs.readFile('/b.txt')": ["CONSUMES FILE:/b.txt"],
    "fs.readFileSync('/b.txt', 'utf8')": ["CONSUMES FILE:/b.txt"],
    "await fs.promises.readFile('/b.txt');": ["CONSUMES FILE:/b.txt"],
    "const x = await fsPromises.readFile('/b.txt', {encoding: 'utf8'})": ["CONSUMES FILE:/b.txt"],
    "require('fs').readFileSync(`/b.txt`)": ["CONSUMES FILE:/b.txt"],
    "require('node:fs/promises').readFile('/b.txt')": ["CONSUMES FILE:/b.txt"],
    "readFileSync('/b.txt')": ["CONSUMES FILE:/b.txt"],
    "fs.readFile('/a', (err, data) => { fs.unlink('/b', done) })": ["CONSUMES FILE:/a", "DELETES FILE:/b"],
    "fs.readFile('/a', function (err) { if (err) throw err })": ["CONSUMES FILE:/a"],
    "fs.writeFileSync('/b')": ["MUTATES FILE:/b"],
    "fs.writeFile('/b', 'rm -rf /c', cb)": ["MUTATES FILE:/b"],
    "fs.appendFile('/var/log/x')": ["MUTATES FILE:/var/log/x"],
    "fs.createReadStream('/a').pipe(fs.createWriteStream('/b'))": ["CONSUMES FILE:/a", "MUTATES FILE:/b"],
    "fs.createWriteStream('/b', {flags: 'wx'})": ["PROVIDES FILE:/b"],
    "fs.unlinkSync('/b')": ["DELETES FILE:/b"],
    "fs.rm('/c', {recursive: true, force: true})": ["DELETES FILE:/c/*"],
    "fs.rm('/c', {recursive: false})": ["DELETES FILE:/c"],
    "fs.rm('/c', options)": ["DELETES FILE:/c/*"],
    "fs.rm('/c', {...options})": ["DELETES FILE:/c/*"],
    "fs.rm('/c', err => {})": ["DELETES FILE:/c"],
    "fs.rm('/c', async (err) => { done() })": ["DELETES FILE:/c", "PROVIDES PROCESS:done", "MUTATES FILE:/*?"],
    "fs.rmdirSync('/c')": ["DELETES FILE:/c"],
    "fs.rmdir('/c', { 'recursive': true })": ["DELETES FILE:/c/*"],
    "fs.rename('/a', '/b')": ["RENAMES FILE:/a", "PROVIDES FILE:/b"],
    "fs.copyFile('/a', '/b')": ["CONSUMES FILE:/a", "MUTATES FILE:/b"],
    "fs.cpSync('/a', '/b', {recursive: true})": ["CONSUMES FILE:/a/*", "MUTATES FILE:/b/*"],
    "fs.mkdirSync('/d/e', {recursive: true})": ["PROVIDES FILE:/d/e"],
    "fs.mkdtemp('/tmp/x-')": ["PROVIDES FILE:/tmp/*"],
    "fs.readdir('/d')": ["CONSUMES FILE:/d"],
    "fs.readdirSync('/d', {recursive: true})": ["CONSUMES FILE:/d/*"],
    "fs.existsSync('/a')": ["DEPENDS_ON FILE:/a"],
    "fs.exists('/a', yes => {})": ["DEPENDS_ON FILE:/a"],
    "fs.pathExists('/a')": ["DEPENDS_ON FILE:/a"],
    "fs.stat('/a')": ["CONSUMES FILE:/a"],
    "fs.access('/a', fs.constants.R_OK)": ["CONSUMES FILE:/a"],
    "fs.chmodSync('/a', 0o600)": ["MUTATES FILE:/a"],
    "fs.utimes('/a', 1, 2)": ["MUTATES FILE:/a"],
    "fs.truncate('/a', 0)": ["MUTATES FILE:/a"],
    "fs.symlinkSync('/a', '/b')": ["PROVIDES FILE:/b"],
    "fs.link('/a', '/b')": ["MUTATES FILE:/a", "PROVIDES FILE:/b"],
    "fs.open('/a')": ["CONSUMES FILE:/a"],
    "fs.openSync('/a', 'r+')": ["MUTATES FILE:/a"],
    "fs.open('/a', 'wx')": ["PROVIDES FILE:/a"],
    "fs.open('/a', fs.constants.O_RDWR | fs.constants.O_CREAT)": ["MUTATES FILE:/a"],
    "fs.open('/a', flags)": ["MUTATES FILE:/a"],
    "fs.writeFileSync(path.join('/a', 'b'), x)": ["MUTATES FILE:/a/b"],
    "fs.writeFileSync('/a/' + 'b')": ["MUTATES FILE:/a/b"],
    "fs.readFile(new URL('file:///a b'))": ["CONSUMES FILE:/a b"],
    "fs.writeFile(1, 'x')": [],
    "process.env.HOME": ["CONSUMES ENV:HOME"],
}

PYTHON = {
    "open('/a')": ["CONSUMES FILE:/a"],
    "open('/a', 'rb')": ["CONSUMES FILE:/a"],
    "open('/a', 'w')": ["MUTATES FILE:/a"],
    "open('/a', mode='a', encoding='utf-8')": ["MUTATES FILE:/a"],
    "open(file='/a', mode='x')": ["PROVIDES FILE:/a"],
    "open('/a', 'r+')": ["MUTATES FILE:/a"],
    "open('/a', mode)": ["MUTATES FILE:/a"],
    "with open('/a') as f:\n    f.read()": ["CONSUMES FILE:/a"],
    "f = open('/a', 'w'); f.write('x'); f.close()": ["MUTATES FILE:/a"],
    "json.load(open(r'/a'))": ["CONSUMES FILE:/a"],
    "open(b'/a', 'w').write('''rm -rf /''')": ["MUTATES FILE:/a"],
    "os.open('/a', os.O_RDONLY)": ["CONSUMES FILE:/a"],
    "os.open('/a', os.O_WRONLY | os.O_CREAT, 0o600)": ["MUTATES FILE:/a"],
    "os.open('/a', os.O_CREAT | os.O_EXCL)": ["PROVIDES FILE:/a"],
    "os.remove('/a')": ["DELETES FILE:/a"],
    "os.unlink('/a')": ["DELETES FILE:/a"],
    "os.rename('/a', '/b')": ["RENAMES FILE:/a", "PROVIDES FILE:/b"],
    "os.replace('/a', '/b')": ["RENAMES FILE:/a", "PROVIDES FILE:/b"],
    "os.mkdir('/d')": ["PROVIDES FILE:/d"],
    "os.makedirs('/d/e', exist_ok=True)": ["PROVIDES FILE:/d/e"],
    "os.rmdir('/d')": ["DELETES FILE:/d"],
    "os.listdir('/d')": ["CONSUMES FILE:/d"],
    "os.walk('/d')": ["CONSUMES FILE:/d/*"],
    "os.path.exists('/a')": ["DEPENDS_ON FILE:/a"],
    "os.path.lexists('/a')": ["DEPENDS_ON FILE:/a"],
    "os.path.isdir('/a')": ["DEPENDS_ON FILE:/a"],
    "Path('/a').exists()": ["DEPENDS_ON FILE:/a"],
    "Path('/a').is_file()": ["DEPENDS_ON FILE:/a"],
    "os.chmod('/a', 0o644)": ["MUTATES FILE:/a"],
    "os.symlink('/a', '/b')": ["PROVIDES FILE:/b"],
    "os.link('/a', '/b')": ["MUTATES FILE:/a", "PROVIDES FILE:/b"],
    "os.environ['HOME']": ["CONSUMES ENV:HOME"],
    "Path('/a').read_text()": ["CONSUMES FILE:/a"],
    "pathlib.Path('/a', 'b').write_bytes(b'')": ["MUTATES FILE:/a/b"],
    "p = Path('/a')\np.unlink()": ["DELETES FILE:/a"],
    "Path('/a').open('w')": ["MUTATES FILE:/a"],
    "Path('/a').rename('/b')": ["RENAMES FILE:/a", "PROVIDES FILE:/b"],
    "Path('/d').iterdir()": ["CONSUMES FILE:/d"],
    "Path('/d').rglob('*.py')": ["CONSUMES FILE:/d/*"],
    "Path('/d').mkdir(parents=True)": ["PROVIDES FILE:/d"],
    "Path('/a').touch()": ["MUTATES FILE:/a"],
    "Path('/b').hardlink_to('/a')": ["MUTATES FILE:/a", "PROVIDES FILE:/b"],
    "shutil.rmtree('/c')": ["DELETES FILE:/c/*"],
    "shutil.copy('/a', '/b')": ["CONSUMES FILE:/a", "MUTATES FILE:/b"],
    "shutil.copytree('/a', '/b')": ["CONSUMES FILE:/a/*", "MUTATES FILE:/b/*"],
    "shutil.move('/a', '/b')": ["RENAMES FILE:/a", "PROVIDES FILE:/b"],
    "glob.glob('/d/*.py')": ["CONSUMES FILE:/d/*"],
    "sqlite3.connect('/x.db')": ["MUTATES FILE:/x.db"],
    "sqlite3.connect(':memory:')": [],
    "os.path.join('/a', 'b')": [],
}

NETWORK = {
    "GET https://example.com/api/v1": ["CONSUMES URL:https://example.com/api/v1"],
    "get HTTPS://Example.com:443/a/../b HTTP/1.1": ["CONSUMES URL:https://example.com/b"],
    "HEAD https://example.com/": ["CONSUMES URL:https://example.com/"],
    "OPTIONS https://example.com/": ["CONSUMES URL:https://example.com/"],
    "POST https://example.com/api": ["MUTATES URL:https://example.com/api"],
    "PUT https://example.com/api?x=1": ["MUTATES URL:https://example.com/api?x=1"],
    "PATCH https://example.com/api": ["MUTATES URL:https://example.com/api"],
    "DELETE https://example.com/api": ["DELETES URL:https://example.com/api"],
    "DELETE /api/users?id=1": ["DELETES API_ENDPOINT:/api/users"],
    "fetch('https://a.b/c')": ["CONSUMES URL:https://a.b/c"],
    "fetch('https://a.b/c', {method: 'POST', body: x})": ["MUTATES URL:https://a.b/c"],
    "await (await fetch('https://a.b/c', {method: 'delete'})).json()": ["DELETES URL:https://a.b/c"],
    "axios.put('https://a.b/c', data)": ["MUTATES URL:https://a.b/c"],
    "axios({url: 'https://a.b/c', method: 'post'})": ["MUTATES URL:https://a.b/c"],
    "http.get('http://a.b/c')": ["CONSUMES URL:http://a.b/c"],
    "requests.get('https://a.b/c').json()": ["CONSUMES URL:https://a.b/c"],
    "requests.post('https://a.b/c', json={'a': [1, 2]})": ["MUTATES URL:https://a.b/c"],
    "requests.request('DELETE', 'https://a.b/c')": ["DELETES URL:https://a.b/c"],
    "httpx.patch(url='https://a.b/c')": ["PROVIDES PROCESS:httpx.patch", "MUTATES FILE:/*?"],
    "session.get('https://a.b/c')": ["CONSUMES URL:https://a.b/c"],
    "urllib.request.urlopen('https://a.b/c', data=b'x')": ["MUTATES URL:https://a.b/c"],
    "urllib.request.urlopen(urllib.request.Request('https://a.b/c', method='DELETE'))": ["DELETES URL:https://a.b/c"],
    "urllib.request.urlretrieve('https://a.b/c', '/f')": ["CONSUMES URL:https://a.b/c", "MUTATES FILE:/f"],
    "net.connect(443, 'example.com')": ["CONSUMES URL:https://example.com/"],
    "net.createConnection({host: 'example.com', port: 5432})": ["CONSUMES URL:tcp://example.com:5432/"],
    "net.Dial('tcp', 'example.com:5432')": ["CONSUMES URL:tcp://example.com:5432/"],
    "s = socket.socket(); s.connect(('h', 80))": ["CONSUMES URL:http://h/"],
    "socket.create_connection(('::1', 22))": ["CONSUMES URL:tcp://[::1]:22/"],
    "net.connect('/run/x.sock')": ["MUTATES FILE:/run/x.sock"],
    "dial example.com:22": ["CONSUMES URL:tcp://example.com:22/"],
    "nc example.com 22": ["CONSUMES URL:tcp://example.com:22/"],
    "curl https://a.b/c": ["CONSUMES URL:https://a.b/c"],
    "curl a.b": ["CONSUMES URL:http://a.b/"],
    "curl -sSL -X POST https://a.b/c -H 'A: b'": ["MUTATES URL:https://a.b/c"],
    "curl -d @/body https://a.b/c": ["MUTATES URL:https://a.b/c", "CONSUMES FILE:/body"],
    "curl -XDELETE 'https://a.b/c?x=*'": ["DELETES URL:https://a.b/c?x=%2A"],
    "curl -T /f https://a.b/c": ["MUTATES URL:https://a.b/c", "CONSUMES FILE:/f"],
    "curl -I https://a.b/c": ["CONSUMES URL:https://a.b/c"],
    "curl -o /f https://a.b/c": ["CONSUMES URL:https://a.b/c", "MUTATES FILE:/f"],
    "curl -O https://a.b/c.tgz": ["CONSUMES URL:https://a.b/c.tgz", "MUTATES FILE:/c.tgz"],
    "curl -K /config": ["PROVIDES PROCESS:curl", "MUTATES FILE:/*?"],
    "wget -q https://a.b/c.tgz": ["CONSUMES URL:https://a.b/c.tgz", "MUTATES FILE:/c.tgz"],
    "wget https://a.b/": ["CONSUMES URL:https://a.b/", "MUTATES FILE:/index.html"],
    "wget -O - https://a.b/c": ["CONSUMES URL:https://a.b/c"],
    "wget -P /d https://a.b/c": ["CONSUMES URL:https://a.b/c", "MUTATES FILE:/d/c"],
}

SHELL = {
    "rm -rf /c": ["DELETES FILE:/c/*"],
    "rm -r -f -- /c": ["DELETES FILE:/c/*"],
    "rm --recursive /c/": ["DELETES FILE:/c/*"],
    "rm /cat/x.txt": ["DELETES FILE:/cat/x.txt"],
    "rm -f /a /b": ["DELETES FILE:/a", "DELETES FILE:/b"],
    "rm /c/*.txt": ["DELETES FILE:/c/*"],
    "rm '/c/*.txt'": ["DELETES FILE:/c/%2A.txt"],
    "rm -rf /": ["DELETES FILE:/*"],
    "rm -rf $DIR": ["DELETES FILE:/*"],
    "rm -rf ~/x": ["DELETES FILE:/*"],
    "rmdir /d": ["DELETES FILE:/d"],
    "unlink /a": ["DELETES FILE:/a"],
    "shred -u /a": ["DELETES FILE:/a"],
    "cat /a /b": ["CONSUMES FILE:/a", "CONSUMES FILE:/b"],
    "cat '/a b'  \"/c d\" /e\\ f": ["CONSUMES FILE:/a b", "CONSUMES FILE:/c d", "CONSUMES FILE:/e f"],
    "head -n 5 /a": ["CONSUMES FILE:/a"],
    "tail -fn5 /a": ["CONSUMES FILE:/a"],
    "less /a": ["CONSUMES FILE:/a"],
    "wc -l < /a": ["CONSUMES FILE:/a"],
    "grep -n x /a": ["CONSUMES FILE:/a"],
    "grep -rn x /d": ["CONSUMES FILE:/d/*"],
    "grep -e x -f /p /a": ["CONSUMES FILE:/p", "CONSUMES FILE:/a"],
    "rg x /d": ["CONSUMES FILE:/d/*"],
    "ls -la /d/": ["CONSUMES FILE:/d"],
    "ls": ["CONSUMES FILE:/"],
    "ls -R /d": ["CONSUMES FILE:/d/*"],
    "find /d -name '*.py'": ["CONSUMES FILE:/d/*"],
    "find /d -delete": ["CONSUMES FILE:/d/*", "DELETES FILE:/d/*"],
    "find /d -exec rm {} +": ["CONSUMES FILE:/d/*", "PROVIDES PROCESS:find", "MUTATES FILE:/*?"],
    "mv /a /b": ["RENAMES FILE:/a", "PROVIDES FILE:/b"],
    "mv /a /d/": ["RENAMES FILE:/a", "PROVIDES FILE:/d/a"],
    "mv -t /d /a /b": ["RENAMES FILE:/a", "PROVIDES FILE:/d/a", "RENAMES FILE:/b", "PROVIDES FILE:/d/b"],
    "cp /a /b": ["CONSUMES FILE:/a", "MUTATES FILE:/b"],
    "cp -r /a /b": ["CONSUMES FILE:/a/*", "MUTATES FILE:/b/*"],
    "cp /a /b /d": ["CONSUMES FILE:/a", "MUTATES FILE:/d/a", "CONSUMES FILE:/b", "MUTATES FILE:/d/b"],
    "touch /a": ["MUTATES FILE:/a"],
    "mkdir -p /d/e": ["PROVIDES FILE:/d/e"],
    "ln -s /a /b": ["PROVIDES FILE:/b"],
    "ln /a /b": ["MUTATES FILE:/a", "PROVIDES FILE:/b"],
    "chmod -R u+x /d": ["MUTATES FILE:/d/*"],
    "chmod -w /a": ["MUTATES FILE:/a"],
    "chown me:us /a": ["MUTATES FILE:/a"],
    "truncate -s 0 /a": ["MUTATES FILE:/a"],
    "sed -i s/a/b/ /f": ["MUTATES FILE:/f"],
    "sed -n 's/a/b/p' /f": ["CONSUMES FILE:/f"],
    "sed 's/a/b/w /out' /f": ["CONSUMES FILE:/f", "PROVIDES PROCESS:sed", "MUTATES FILE:/*?"],
    "sed 's/we/w/;/s/d;5,$p' /f": ["CONSUMES FILE:/f"],
    "sed '/s/w /out/x' /f": ["CONSUMES FILE:/f", "PROVIDES PROCESS:sed", "MUTATES FILE:/*?"],
    "sed -e '1e rm /a' /f": ["CONSUMES FILE:/f", "PROVIDES PROCESS:sed", "MUTATES FILE:/*?"],
    "sed -f /script /f": ["CONSUMES FILE:/script", "CONSUMES FILE:/f", "PROVIDES PROCESS:sed", "MUTATES FILE:/*?"],
    "cat > /a.py <<'EOF'\nprint(open('/x').read())\nEOF": ["MUTATES FILE:/a.py"],
    "env A=1 rm /a": ["DELETES FILE:/a"],
    "tee -a /a < /b": ["MUTATES FILE:/a", "CONSUMES FILE:/b"],
    "dd if=/dev/zero of=/a bs=1M": ["MUTATES FILE:/a"],
    "sort -o /b /a": ["CONSUMES FILE:/a", "MUTATES FILE:/b"],
    "echo hi": [],
    "echo hi > /a": ["MUTATES FILE:/a"],
    "echo hi >>/a 2>/dev/null": ["MUTATES FILE:/a"],
    "echo hi &>/a": ["MUTATES FILE:/a"],
    "echo 'rm -rf /'; true": [],
    "cat /a 2>&1 | grep x | tee /b && rm /c || touch /d; ls /e &": [
        *["CONSUMES FILE:/a", "MUTATES FILE:/b", "DELETES FILE:/c", "MUTATES FILE:/d", "CONSUMES FILE:/e"]
    ],
    "cat > /a <<EOF\nrm -rf /\nEOF\nrm /b": ["MUTATES FILE:/a", "DELETES FILE:/b"],
    "cat > /a <<'EOF'\n$(rm /x)\nEOF": ["MUTATES FILE:/a"],
    "cat > /a <<EOF\n$(rm /x)\nEOF": ["PROVIDES PROCESS:sh", "MUTATES FILE:/*?", "MUTATES FILE:/a"],
    "cat <<< hello": [],
    "cd /w && rm a": ["DELETES FILE:/w/a"],
    "(cd /w; rm a); rm b": ["DELETES FILE:/w/a", "DELETES FILE:/b"],
    "{ cat /a; } > /b": ["CONSUMES FILE:/a", "MUTATES FILE:/b"],
    "A=1 B=2 rm /a": ["DELETES FILE:/a"],
    "sudo -u me rm /a": ["DELETES FILE:/a"],
    "timeout 5 rm /a": ["DELETES FILE:/a"],
    "nohup rm /a &": ["DELETES FILE:/a"],
    "/bin/rm /a": ["DELETES FILE:/a"],
    "bash -c 'rm -rf /c'": ["DELETES FILE:/c/*"],
    "sh -c \"sh -c 'rm /a'\"": ["DELETES FILE:/a"],
    "rm /a # and not /b": ["DELETES FILE:/a"],
    "rm \\\n /a": ["DELETES FILE:/a"],
}

OPAQUE = {
    "npm install": ["PROVIDES PROCESS:npm", "MUTATES FILE:/w/*?"],
    "./tool --x": ["PROVIDES PROCESS:tool", "MUTATES FILE:/w/*?"],
    "/opt/bin/tool": ["PROVIDES PROCESS:tool", "MUTATES FILE:/w/*?"],
    "execute_binary ./x": ["PROVIDES PROCESS:x", "MUTATES FILE:/w/*?"],
    "execute_binary('./x')": ["PROVIDES PROCESS:x", "MUTATES FILE:/w/*?"],
    "run_command('make all', cwd='/v')": ["PROVIDES PROCESS:make", "MUTATES FILE:/v/*?"],
    "run_command make all": ["PROVIDES PROCESS:make", "MUTATES FILE:/w/*?"],
    "xargs rm < /list": ["PROVIDES PROCESS:xargs", "MUTATES FILE:/w/*?", "CONSUMES FILE:/list"],
    "bash build.sh": ["PROVIDES PROCESS:sh", "MUTATES FILE:/w/*?"],
    "echo $(rm /a)": ["PROVIDES PROCESS:sh", "MUTATES FILE:/w/*?"],
    "echo `rm /a`": ["PROVIDES PROCESS:sh", "MUTATES FILE:/w/*?"],
    "for f in a b; do rm $f; done": ["PROVIDES PROCESS:sh", "MUTATES FILE:/w/*?"],
    "$TOOL /a": ["PROVIDES PROCESS:?", "MUTATES FILE:/w/*?"],
    "spawn('node', ['a.js'], {cwd: '/v'})": ["PROVIDES PROCESS:node", "MUTATES FILE:/v/*?"],
    "child_process.execFileSync('/usr/bin/tool', ['-x'])": ["PROVIDES PROCESS:tool", "MUTATES FILE:/w/*?"],
    "child_process.fork('a.js')": ["PROVIDES PROCESS:node", "MUTATES FILE:/w/*?"],
    "subprocess.run(['npm', 'install'], check=True)": ["PROVIDES PROCESS:npm", "MUTATES FILE:/w/*?"],
    "subprocess.run(command)": ["PROVIDES PROCESS:?", "MUTATES FILE:/w/*?"],
    "subprocess.Popen(['rm', '-rf', '/c'])": ["PROVIDES PROCESS:rm", "DELETES FILE:/c/*"],
    "subprocess.run('rm -rf /c', shell=True)": ["PROVIDES PROCESS:rm", "DELETES FILE:/c/*"],
    "os.system('rm -rf /c')": ["PROVIDES PROCESS:rm", "DELETES FILE:/c/*"],
    "exec('cat a > b')": ["PROVIDES PROCESS:cat", "CONSUMES FILE:/w/a", "MUTATES FILE:/w/b"],
    "os.system(line)": ["PROVIDES PROCESS:sh", "MUTATES FILE:/w/*?"],
    "frobnicate('/x')": ["PROVIDES PROCESS:frobnicate", "MUTATES FILE:/w/*?"],
    "fs.frobnicate('/x')": ["PROVIDES PROCESS:fs.frobnicate", "MUTATES FILE:/w/*?"],
    "fs.readFile('/a').then(x => tool.go(x))": ["CONSUMES FILE:/a", "PROVIDES PROCESS:tool.go", "MUTATES FILE:/w/*?"],
    "fetch(url)": ["PROVIDES PROCESS:?", "MUTATES FILE:/w/*?"],
    "???": ["PROVIDES PROCESS:?", "MUTATES FILE:/w/*?"],
}


def cases(table: dict[str, list[str]]) -> list[object]:
    return [pytest.param(text, seen, id=text.replace("\n", "|")) for text, seen in table.items()]


@pytest.mark.requirement("KO-2.1")
@for_each(("text", "seen"), cases(NODE | PYTHON | SHELL))
def test_calls_on_files_are_read_as_what_they_do(text, seen):
    assert told(text) == seen


@pytest.mark.requirement("KO-2.1")
@for_each(("text", "seen"), cases(NETWORK))
def test_requests_and_connections_are_read_as_what_they_do(text, seen):
    assert told(text) == seen


@pytest.mark.requirement("KO-5.1", "KO-2.1")
@for_each(("text", "seen"), cases(OPAQUE))
def test_what_is_not_known_may_change_anything_where_it_works(text, seen):
    assert told(text, cwd="/w") == seen


@pytest.mark.requirement("KO-5.1")
@pytest.mark.parametrize(
    ("predicate", "resource", "passes"),
    [
        ("MUTATES", "FILE:/w/*", True),
        ("PROVIDES", "PROCESS:tool", True),
        ("MUTATES", "FILE:/*", True),
        ("CONSUMES", "FILE:/w/*", False),
        ("MUTATES", "FILE:/w/a", False),
        ("PROVIDES", "PROCESS:other", False),
    ],
)
def test_an_opaque_tool_needs_its_folder_or_its_process_declared(predicate, resource, passes):
    declaration = Declaration("a", "s", [Triple(Predicate(predicate), canonical_resource(resource))])
    assert (declaration.outside(read_call("./tool", cwd="/w")) == []) is passes


@pytest.mark.requirement("KO-2.1")
@pytest.mark.parametrize(
    ("text", "exists", "seen"),
    [
        ("fs.writeFileSync('/b')", None, "MUTATES FILE:/b"),
        ("fs.writeFileSync('/b')", True, "MUTATES FILE:/b"),
        ("fs.writeFileSync('/b')", False, "PROVIDES FILE:/b"),
        ("touch /b", False, "PROVIDES FILE:/b"),
        ("echo > /b", False, "PROVIDES FILE:/b"),
        ("open('/b', 'w')", False, "PROVIDES FILE:/b"),
        ("chmod 600 /b", False, "MUTATES FILE:/b"),
    ],
)
def test_writing_a_file_that_is_known_to_be_missing_provides_it(text, exists, seen):
    assert told(text, exists=exists) == [seen]


@pytest.mark.parametrize(
    ("name", "cwd", "resource"),
    [
        ("a.txt", "/", "FILE:/a.txt"),
        ("a.txt", "/w/d", "FILE:/w/d/a.txt"),
        ("../a.txt", "/w/d", "FILE:/w/a.txt"),
        ("../../../a", "/w/d", "FILE:/a"),
        ("/x//y/./z/..", "/w", "FILE:/x/y"),
        ("./a", "/w/", "FILE:/w/a"),
        ("/a\nb", "/", "FILE:/a%0Ab"),
        ("/a%20b", "/", "FILE:/a%2520b"),
        ("/ä", "/", "FILE:/ä"),
    ],
)
def test_names_become_canonical_and_relative_ones_start_at_the_working_directory(name, cwd, resource):
    assert told(f"cat '{name}'", cwd=cwd) == [f"CONSUMES {resource}"]
    literal = name.replace("\n", "\\n")
    assert told(f"fs.readFile('{literal}')", cwd=cwd) == [f"CONSUMES {resource}"]


def test_case_is_kept_or_not_as_the_operator_says():
    assert told("cat /A", names=NameComparison(ignores_case=True)) == ["CONSUMES FILE:/a"]


@pytest.mark.requirement("KO-2.1")
@for_each(
    "text",
    [
        *["", "   ", "rm 'a", 'rm "a', "fs.readFile('/a'", "fs.readFile('/a)", "fs.readFile)('/a'", "()"],
        *["rm a |", "| rm a", "rm a &&", "rm >", "cat <<EOF", "cat <<EOF\nx", "(rm a", "rm a)", "rm ${a", "rm $(a"],
        *["cat `a", "fs.readFile()", "fs.rename('/a')", "mv /a", "curl", "wget -q", "nc", "connect nowhere", "bash -c"],
        *["GET http://", "GET http://[", "requests.request('BREW', 'https://a.b/')", "cat \0", "x=('"],
        *["a" * (MAX_CALL_CHARS + 1), "f(" * 60 + ")" * 60, "cat " + "/a" * 300],
    ],
)
def test_what_is_no_call_is_refused_and_said_why(text):
    with pytest.raises(RefusedError) as caught:
        read_call(text)
    assert caught.value.code == "INVALID_CALL"
    assert len(caught.value.message) < 1_000


@pytest.mark.parametrize("cwd", ["", "w", None, 5])
def test_a_working_directory_is_absolute(cwd):
    with pytest.raises(RefusedError, match="no absolute path"):
        read_call("ls", cwd=cwd)


@pytest.mark.parametrize("text", [None, 5, ["rm"], b"rm"])
def test_a_call_is_a_text(text):
    with pytest.raises(RefusedError, match="A call is a text"):
        read_call(text)


PIECES = st.sampled_from(
    [
        *["rm", "cat", "fs.readFile", "open", "(", ")", "'", '"', "`", "$(", "${", "{", "}", "[", "]", "|", "&&", ";"],
        *["<<", "EOF", "\n", "\\", "/a", "*", "~", "-rf", ",", ".", "=", "=>", "+", "#", "//", "/*", "f", "Path", " "],
        *["-c", "sh", "'/x'", "{recursive: true}", "await ", "as", "https://h/", "POST ", "-", "1", "sed", "s/a/b/w"],
        *["\xe9", "\u2028", "\ud800", ">", "rm /a", "f('/a')", "x = ", "if"],
    ]
)


def read_or_refused(text: str) -> tuple[Seen, ...] | str:
    try:
        return read_call(text, cwd="/w")
    except RefusedError as refused:
        return refused.code


@given(st.lists(PIECES, max_size=20).map("".join) | st.lists(PIECES, max_size=20).map(" ".join) | st.text(max_size=60))
@pytest.mark.slow
def test_any_text_is_read_or_refused(text):
    seen = read_or_refused(text)
    assert seen == "INVALID_CALL" or len(set(seen)) == len(seen)


@given(st.text("abcdefgh.", min_size=3, max_size=12).filter(lambda name: name.strip(".")))
def test_a_command_or_function_that_nobody_knows_is_never_nothing(name):
    assert read_call(f"x{name}")
    assert read_call(f"x{name.replace('.', '_')}('/a')")


@pytest.mark.parametrize(
    "text",
    [
        *["(" * 16_000, "/*" * 8_000, "'''" * 5_000, "{a," * 5_000, "$(" * 8_000, "a(" * 49 + "b" + ")" * 49],
        *["a;" * 8_000, "<<a\n" * 4_000, "f(a=f(a=" * 24 + "1" + ")" * 48, "`" * 16_000, "x=y(1);" * 2_000],
    ],
)
@pytest.mark.slow
def test_long_and_hostile_texts_take_work_in_proportion_to_their_length(text):
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        seen = read_or_refused(text)
    finally:
        sys.setprofile(None)
    assert seen == "INVALID_CALL" or isinstance(seen, tuple)
    assert calls <= 500 * len(text)
