"""Backups: taken, listed, changed, copied, restored; over kills and drops."""

import datetime

import pytest
from google.api_core import exceptions
from google.cloud.bigtable_admin_v2 import types as admin
from google.protobuf import field_mask_pb2

from server import Server, admin_clients, data_client

PARENT = "projects/p/instances/backups"
CLUSTER = f"{PARENT}/clusters/backups-c1"


def in_hours(hours):
    now = datetime.datetime.now(tz=datetime.timezone.utc)
    return now + datetime.timedelta(hours=hours)


def create(tables, table_id):
    table = admin.Table(column_families={"f": admin.ColumnFamily()})
    return tables.create_table(parent=PARENT, table_id=table_id, table=table).name


def back_up(tables, backup_id, source, hours=24, **fields):
    backup = admin.Backup(source_table=source, expire_time=in_hours(hours), **fields)
    return tables.create_backup(parent=CLUSTER, backup_id=backup_id, backup=backup)


def write(address, table_id, keys):
    with data_client(address) as client:
        for key in keys:
            client.mutate_row(
                table_name=f"{PARENT}/tables/{table_id}",
                row_key=key,
                mutations=[{"set_cell": {"family_name": "f", "column_qualifier": b"q", "timestamp_micros": 1000, "value": key}}],
            )


def rows(address, table_id):
    found = []
    with data_client(address) as client:
        for response in client.read_rows(table_name=f"{PARENT}/tables/{table_id}"):
            found += [chunk.row_key for chunk in response.chunks]
    return found


def test_the_life_of_a_backup_over_kills_and_the_drop_of_its_table(tmp_path):
    server = Server("--data", str(tmp_path))
    with admin_clients(server.address) as clients:
        tables = clients.tables
        source = create(tables, "t")
        write(server.address, "t", [b"a", b"b"])
        operation = back_up(tables, "daily", source)
        backup = operation.result()
        assert operation.done() and operation.metadata.source_table == source
        assert backup.name == f"{CLUSTER}/backups/daily"
        assert backup.state == admin.Backup.State.READY
        assert backup.backup_type == admin.Backup.BackupType.STANDARD
        write(server.address, "t", [b"later"])
        tables.delete_table(name=source)
    server.kill()
    server = Server("--data", str(tmp_path))
    with admin_clients(server.address) as clients:
        tables = clients.tables
        assert tables.get_backup(name=backup.name) == backup
        restored = tables.restore_table(
            {"parent": PARENT, "table_id": "back", "backup": backup.name}
        )
        table = restored.result()
        assert restored.metadata.backup_info.backup == backup.name
        assert table.restore_info.backup_info.source_table == source
        assert rows(server.address, "back") == [b"a", b"b"]
    server.kill()
    server = Server("--data", str(tmp_path))
    with admin_clients(server.address) as clients:
        tables = clients.tables
        found = tables.get_table(name=f"{PARENT}/tables/back")
        assert found.restore_info.backup_info.backup == backup.name
        assert rows(server.address, "back") == [b"a", b"b"]
        tables.delete_backup(name=backup.name)
    server.kill()
    server = Server("--data", str(tmp_path))
    with admin_clients(server.address) as clients:
        with pytest.raises(exceptions.NotFound, match="daily"):
            clients.tables.get_backup(name=backup.name)
        assert rows(server.address, "back") == [b"a", b"b"], "the table keeps its rows"
    assert server.terminate() == 0


def test_backups_are_listed_filtered_ordered_and_paged(tables):
    sources = [create(tables, table_id) for table_id in ("list-a", "list-b")]
    for number in range(5):
        back_up(tables, f"list-{number}", sources[number % 2], hours=24 + number).result()
    ids = lambda **request: [
        backup.name.rsplit("/", 1)[1]
        for backup in tables.list_backups(admin.ListBackupsRequest(parent=CLUSTER, **request))
        if "/list-" in backup.name
    ]
    newest_first = [f"list-{number}" for number in (4, 3, 2, 1, 0)]
    assert ids() == newest_first
    assert ids(page_size=2) == newest_first
    assert ids(order_by="name") == newest_first[::-1]
    assert ids(order_by="source_table, expire_time desc") == [
        "list-4", "list-2", "list-0", "list-3", "list-1",
    ]
    assert ids(filter="name:list-3 OR name:list-1", order_by="name") == ["list-1", "list-3"]
    assert ids(filter="source_table:list-b AND state:READY", order_by="name") == ["list-1", "list-3"]
    assert ids(filter=f'expire_time > "{in_hours(26.5).isoformat()}"', order_by="name") == ["list-3", "list-4"]
    everywhere = admin.ListBackupsRequest(parent=f"{PARENT}/clusters/-", filter="name:list-0")
    assert len(list(tables.list_backups(everywhere))) == 1
    for field, wrong in [("filter", "bogus = 1"), ("order_by", "bogus"), ("page_token", "x"), ("page_size", -1)]:
        with pytest.raises(exceptions.InvalidArgument, match=field):
            ids(**{field: wrong})
    first = next(tables.list_backups(admin.ListBackupsRequest(parent=CLUSTER, page_size=1)).pages)
    with pytest.raises(exceptions.InvalidArgument, match="page_token"):
        ids(page_token=first.next_page_token, order_by="name")
    with pytest.raises(exceptions.NotFound, match="none"):
        tables.list_backups(parent=f"{PARENT}/clusters/none")


def test_the_expiry_is_checked_and_can_be_changed(tables):
    source = create(tables, "expiry")
    for hours in (1, 24 * 91):
        with pytest.raises(exceptions.InvalidArgument, match="expire_time"):
            back_up(tables, "expiry", source, hours=hours)
    name = back_up(tables, "expiry", source).result().name
    later = in_hours(48).replace(microsecond=7)
    mask = field_mask_pb2.FieldMask(paths=["expire_time"])
    changed = tables.update_backup(backup={"name": name, "expire_time": later}, update_mask=mask)
    assert changed.expire_time == later
    assert tables.get_backup(name=name).expire_time == later
    wrong = field_mask_pb2.FieldMask(paths=["source_table"])
    for backup, mask in [
        ({"name": name, "expire_time": in_hours(1)}, mask),
        ({"name": name, "expire_time": later}, wrong),
        ({"name": name, "expire_time": later}, field_mask_pb2.FieldMask()),
    ]:
        with pytest.raises(exceptions.InvalidArgument):
            tables.update_backup(backup=backup, update_mask=mask)


def test_a_backup_is_copied_once_and_the_copy_stands_alone(tables):
    source = back_up(tables, "original", create(tables, "copied")).result().name
    copy = lambda backup_id, source, hours=24: tables.copy_backup(
        parent=CLUSTER, backup_id=backup_id, source_backup=source, expire_time=in_hours(hours)
    )
    operation = copy("copy", source)
    copied = operation.result()
    assert copied.source_backup == source
    assert operation.metadata.source_backup_info.backup == source
    with pytest.raises(exceptions.FailedPrecondition, match="copy"):
        copy("copy-of-copy", copied.name)
    with pytest.raises(exceptions.AlreadyExists, match="already exists"):
        copy("copy", source)
    with pytest.raises(exceptions.InvalidArgument, match="expire_time"):
        copy("long", source, hours=24 * 31)
    with pytest.raises(exceptions.NotFound, match="nothing"):
        copy("other", f"{CLUSTER}/backups/nothing")
    tables.delete_backup(name=source)
    assert tables.get_backup(name=copied.name).size_bytes >= 0
    tables.restore_table(
        {"parent": PARENT, "table_id": "from-copy", "backup": copied.name}
    ).result()
    with pytest.raises(exceptions.AlreadyExists, match="already exists"):
        tables.restore_table({"parent": PARENT, "table_id": "from-copy", "backup": copied.name})


def test_malformed_and_impossible_backups_are_refused(tables):
    source = create(tables, "refused")
    back_up(tables, "taken", source).result()
    with pytest.raises(exceptions.AlreadyExists, match="already exists"):
        back_up(tables, "taken", source)
    with pytest.raises(exceptions.NotFound, match="none"):
        back_up(tables, "x", f"{PARENT}/tables/none")
    with pytest.raises(exceptions.InvalidArgument, match="backup_id"):
        back_up(tables, "-x", source)
    with pytest.raises(exceptions.InvalidArgument, match="source_table"):
        back_up(tables, "x", "projects/p/instances/other/tables/t")
    with pytest.raises(exceptions.InvalidArgument, match="hot_to_standard_time"):
        back_up(tables, "x", source, hot_to_standard_time=in_hours(30))
    hot = back_up(tables, "hot", source, backup_type="HOT", hot_to_standard_time=in_hours(30))
    assert hot.result().backup_type == admin.Backup.BackupType.HOT
    with pytest.raises(exceptions.InvalidArgument, match="project"):
        tables.restore_table(
            {"parent": "projects/q/instances/i", "table_id": "t", "backup": f"{CLUSTER}/backups/taken"}
        )
    for call in (tables.get_backup, tables.delete_backup):
        with pytest.raises(exceptions.InvalidArgument, match="expected in the form"):
            call(name="b")
